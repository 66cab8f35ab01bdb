#include "chat/jinja/expression_parser.h"

#include <algorithm>

namespace redlite::chat::jinja {

using Kind = Token::Kind;
using Node = Expression::Kind;

const Token& ExpressionParser::next() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::is_operator(std::string_view text) const {
  return peek().kind == Kind::Operator && peek().text == text;
}

bool ExpressionParser::take_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::take_name(std::string_view text) {
  if (peek().kind != Kind::Name || peek().text != text) return false;
  next();
  return true;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!take_operator(text)) fail_at(peek(), fmt::format("'{}' is wanted", text));
}

void ExpressionParser::expect(Kind kind, std::string_view what) {
  const Token& token = next();
  if (token.kind != kind) fail_at(token, fmt::format("'{}' is wanted", what));
}

ExpressionPtr ExpressionParser::make(Node kind, uint32_t offset) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->offset = offset;
  return node;
}

ExpressionPtr ExpressionParser::finish(ExpressionPtr node) {
  int below = 0;
  for (const auto& operand : node->operands)
    if (operand) below = std::max(below, operand->height);
  for (const auto& argument : node->arguments) below = std::max(below, argument.value->height);
  node->height = below + 1;
  if (node->height > kMaxHeight) throw SyntaxFailure(node->offset, "the expression is too long");
  return node;
}

Symbol ExpressionParser::symbol(std::string_view name) {
  const auto found = symbols_.find(name);
  if (found != symbols_.end()) return found->second;
  const auto id = static_cast<Symbol>(names_.names.size());
  names_.names.emplace_back(name);
  names_.is_read.push_back(0);
  symbols_.emplace(name, id);
  return id;
}

ExpressionPtr ExpressionParser::read_expression(bool with_condition) {
  const Depth depth(*this);
  ExpressionPtr value = read_or();
  while (with_condition && take_name("if")) {
    ExpressionPtr node = make(Node::Conditional, value->offset);
    node->operands.push_back(read_or());
    node->operands.push_back(std::move(value));
    node->operands.push_back(take_name("else") ? read_expression(true) : nullptr);
    value = finish(std::move(node));
  }
  return value;
}

bool ExpressionParser::ends_expression() const {
  const Token& token = peek();
  return token.kind == Kind::VariableEnd || token.kind == Kind::BlockEnd || token.kind == Kind::End ||
         is_operator(")") || is_operator("=") ||
         (token.kind == Kind::Name && (token.text == "if" || token.text == "recursive"));
}

ExpressionPtr ExpressionParser::read_tuple(bool with_condition) {
  ExpressionPtr first = read_expression(with_condition);
  if (!is_operator(",")) return first;
  ExpressionPtr tuple = make(Node::Tuple, first->offset);
  tuple->operands.push_back(std::move(first));
  while (take_operator(",")) {
    if (ends_expression()) break;
    tuple->operands.push_back(read_expression(with_condition));
  }
  return finish(std::move(tuple));
}

ExpressionPtr ExpressionParser::read_or() {
  ExpressionPtr left = read_and();
  while (take_name("or")) {
    ExpressionPtr node = make(Node::Or, left->offset);
    node->operands.push_back(std::move(left));
    node->operands.push_back(read_and());
    left = finish(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::read_and() {
  ExpressionPtr left = read_not();
  while (take_name("and")) {
    ExpressionPtr node = make(Node::And, left->offset);
    node->operands.push_back(std::move(left));
    node->operands.push_back(read_not());
    left = finish(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::read_not() {
  const uint32_t offset = peek().offset;
  if (!take_name("not")) return read_compare();
  const Depth depth(*this);
  ExpressionPtr node = make(Node::Not, offset);
  node->operands.push_back(read_not());
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::read_compare() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::Equal},     {"!=", Operator::NotEqual}, {"<", Operator::Less},
      {"<=", Operator::LessEqual}, {">", Operator::Greater},   {">=", Operator::GreaterEqual},
  };
  ExpressionPtr first = read_sum();
  ExpressionPtr node;
  for (;;) {
    Operator op = Operator::In;
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& o) { return is_operator(o.first); });
    const uint32_t offset = peek().offset;
    if (found != std::end(kOperators)) {
      op = found->second;
      next();
    } else if (peek().kind == Kind::Name && peek().text == "not" && peek(1).kind == Kind::Name &&
               peek(1).text == "in") {
      op = Operator::NotIn;
      next();
      next();
    } else if (!take_name("in")) {
      break;
    }
    if (!node) {
      node = make(Node::Compare, offset);
      node->operands.push_back(std::move(first));
    }
    node->operators.push_back(op);
    node->operands.push_back(read_sum());
  }
  return node ? finish(std::move(node)) : std::move(first);
}

ExpressionPtr ExpressionParser::read_chain(ExpressionPtr (ExpressionParser::*operand)(),
                                           Operators operators) {
  ExpressionPtr first = (this->*operand)();
  ExpressionPtr node;
  for (;;) {
    const auto* found =
        std::find_if(operators.begin(), operators.end(), [&](const auto& o) { return is_operator(o.first); });
    if (found == operators.end()) break;
    const uint32_t offset = next().offset;
    if (!node) {
      node = make(Node::Arithmetic, offset);
      node->operands.push_back(std::move(first));
    }
    node->operators.push_back(found->second);
    node->operands.push_back((this->*operand)());
  }
  return node ? finish(std::move(node)) : std::move(first);
}

ExpressionPtr ExpressionParser::read_sum() {
  return read_chain(&ExpressionParser::read_concat, {{"+", Operator::Add}, {"-", Operator::Subtract}});
}

ExpressionPtr ExpressionParser::read_concat() {
  ExpressionPtr first = read_product();
  if (!is_operator("~")) return first;
  ExpressionPtr node = make(Node::Concat, first->offset);
  node->operands.push_back(std::move(first));
  while (take_operator("~")) node->operands.push_back(read_product());
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::read_product() {
  return read_chain(&ExpressionParser::read_power, {{"*", Operator::Multiply},
                                                    {"/", Operator::Divide},
                                                    {"//", Operator::FloorDivide},
                                                    {"%", Operator::Modulo}});
}

ExpressionPtr ExpressionParser::read_power() {
  ExpressionPtr left = read_unary(true);
  while (is_operator("**")) {
    ExpressionPtr node = make(Node::Arithmetic, next().offset);
    node->operators.push_back(Operator::Power);
    node->operands.push_back(std::move(left));
    node->operands.push_back(read_unary(true));
    left = finish(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::read_unary(bool with_filters) {
  const Depth depth(*this);
  const Token& token = peek();
  ExpressionPtr value;
  if (is_operator("-") || is_operator("+")) {
    next();
    value = make(token.text == "-" ? Node::Negate : Node::Positive, token.offset);
    value->operands.push_back(read_unary(false));
    value = finish(std::move(value));
  } else {
    value = read_primary();
  }
  value = read_postfix(std::move(value));
  return with_filters ? read_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::read_primary() {
  const Token& token = next();
  const auto constant = [&](Value value) {
    ExpressionPtr node = make(Node::Constant, token.offset);
    node->constant = std::move(value);
    return node;
  };
  switch (token.kind) {
    case Kind::Name: {
      const std::string& name = token.text;
      if (name == "true" || name == "True") return constant(true);
      if (name == "false" || name == "False") return constant(false);
      if (name == "none" || name == "None") return constant(None());
      ExpressionPtr node = make(Node::Name, token.offset);
      node->symbol = symbol(name);
      is_read(node->symbol) = 1;
      return node;
    }
    case Kind::String: {
      std::string text = token.text;
      while (peek().kind == Kind::String) text += next().text;
      return constant(Text(std::move(text)));
    }
    case Kind::Integer:
      return constant(token.integer);
    case Kind::Float:
      return constant(token.number);
    default:
      break;
  }
  if (token.kind == Kind::Operator && token.text == "(") {
    ExpressionPtr value;
    if (is_operator(")")) {
      value = make(Node::Tuple, token.offset);
    } else {
      value = read_tuple(true);
    }
    expect_operator(")");
    return value;
  }
  if (token.kind == Kind::Operator && token.text == "[") {
    ExpressionPtr list = make(Node::List, token.offset);
    while (!take_operator("]")) {
      if (!list->operands.empty()) {
        expect_operator(",");
        if (take_operator("]")) break;
      }
      list->operands.push_back(read_expression(true));
    }
    return finish(std::move(list));
  }
  if (token.kind == Kind::Operator && token.text == "{") return read_dict(token);
  fail_at(token, "a value is wanted");
}

ExpressionPtr ExpressionParser::read_dict(const Token& open) {
  ExpressionPtr dict = make(Node::Dict, open.offset);
  while (!take_operator("}")) {
    if (!dict->operands.empty()) {
      expect_operator(",");
      if (take_operator("}")) break;
    }
    dict->operands.push_back(read_expression(true));
    expect_operator(":");
    dict->operands.push_back(read_expression(true));
  }
  return finish(std::move(dict));
}

ExpressionPtr ExpressionParser::read_postfix(ExpressionPtr value) {
  for (;;) {
    if (take_operator(".")) {
      value = read_attribute(std::move(value));
    } else if (take_operator("[")) {
      value = read_subscript(std::move(value));
    } else if (is_operator("(")) {
      value = read_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::read_call(ExpressionPtr value) {
  ExpressionPtr call = make(Node::Call, value->offset);
  call->operands.push_back(std::move(value));
  call->arguments = read_arguments();
  return finish(std::move(call));
}

ExpressionPtr ExpressionParser::read_attribute(ExpressionPtr value) {
  const Token& name = next();
  ExpressionPtr node;
  if (name.kind == Kind::Name) {
    node = make(Node::Attribute, name.offset);
    node->name = name.text;
    node->operands.push_back(std::move(value));
  } else if (name.kind == Kind::Integer) {
    node = make(Node::Item, name.offset);
    node->operands.push_back(std::move(value));
    node->operands.push_back(make(Node::Constant, name.offset));
    node->operands.back()->constant = name.integer;
  } else {
    fail_at(name, "the name of an attribute is wanted");
  }
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::read_subscript(ExpressionPtr value) {
  ExpressionPtr node = make(Node::Item, peek().offset);
  node->operands.push_back(std::move(value));
  const auto bound = [&]() -> ExpressionPtr {
    return is_operator(":") || is_operator("]") ? nullptr : read_expression(true);
  };
  if (!is_operator(":")) node->operands.push_back(read_expression(true));
  if (is_operator(":")) {
    if (node->operands.size() == 1) node->operands.push_back(nullptr);
    node->kind = Node::Slice;
    next();
    node->operands.push_back(bound());
    node->operands.push_back(take_operator(":") ? bound() : nullptr);
  }
  expect_operator("]");
  return finish(std::move(node));
}

std::vector<Argument> ExpressionParser::read_arguments() {
  std::vector<Argument> arguments;
  bool named = false;
  expect_operator("(");
  while (!take_operator(")")) {
    if (!arguments.empty()) {
      expect_operator(",");
      if (take_operator(")")) break;
    }
    const Token& first = peek();
    Argument argument{Argument::Kind::Positional, "", nullptr};
    if (take_operator("**")) {
      argument.kind = Argument::Kind::UnpackedNamed;
    } else if (take_operator("*")) {
      argument.kind = Argument::Kind::Unpacked;
    } else if (first.kind == Kind::Name && peek(1).kind == Kind::Operator && peek(1).text == "=") {
      argument.kind = Argument::Kind::Named;
      argument.name = first.text;
      next();
      next();
    }
    const bool is_named =
        argument.kind == Argument::Kind::Named || argument.kind == Argument::Kind::UnpackedNamed;
    if (named && !is_named) fail_at(first, "an argument without a name follows one with a name");
    named = is_named;
    argument.value = read_expression(true);
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

ExpressionPtr ExpressionParser::read_filters(ExpressionPtr value, bool first_named) {
  while (first_named || take_operator("|")) {
    first_named = false;
    const Token& name = next();
    if (name.kind != Kind::Name) fail_at(name, "the name of a filter is wanted");
    ExpressionPtr node = make(Node::Filter, name.offset);
    node->name = name.text;
    node->operands.push_back(std::move(value));
    if (is_operator("(")) node->arguments = read_arguments();
    value = finish(std::move(node));
  }
  return value;
}

ExpressionPtr ExpressionParser::read_filters_and_tests(ExpressionPtr value) {
  for (;;) {
    if (is_operator("|")) {
      value = read_filters(std::move(value));
    } else if (take_name("is")) {
      value = read_test(std::move(value));
    } else if (is_operator("(")) {
      value = read_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::read_test(ExpressionPtr value) {
  const uint32_t offset = peek().offset;
  const bool negated = take_name("not");
  const Token& name = next();
  if (name.kind != Kind::Name) fail_at(name, "the name of a test is wanted");
  ExpressionPtr node = make(Node::Test, name.offset);
  node->name = name.text;
  node->operands.push_back(std::move(value));
  const Token& token = peek();
  const auto is_any = [&](std::initializer_list<std::string_view> texts) {
    return std::find(texts.begin(), texts.end(), token.text) != texts.end();
  };
  if (is_operator("(")) {
    node->arguments = read_arguments();
  } else if ((token.kind == Kind::Name && !is_any({"else", "or", "and"})) || token.kind == Kind::String ||
             token.kind == Kind::Integer || token.kind == Kind::Float ||
             (token.kind == Kind::Operator && is_any({"[", "{"}))) {
    // "a is divisibleby 3"; but "a is b is c" is an error in Jinja, and "if", "in" and the like end the test.
    if (token.kind == Kind::Name && token.text == "is") fail_at(token, "tests in a row need parentheses");
    if (token.kind != Kind::Name || !is_any({"if", "in", "not", "recursive"})) {
      node->arguments.push_back({Argument::Kind::Positional, "", read_postfix(read_primary())});
    }
  }
  node = finish(std::move(node));
  if (!negated) return node;
  ExpressionPtr inverse = make(Node::Not, offset);
  inverse->operands.push_back(std::move(node));
  return finish(std::move(inverse));
}

}  // namespace redlite::chat::jinja
