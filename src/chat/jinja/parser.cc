#include "chat/jinja/parser.h"

#include <algorithm>
#include <map>
#include <utility>

#include "chat/jinja/expression_parser.h"

namespace redlite::chat::jinja {
namespace {

using Kind = Token::Kind;

/// Statements; what they hold is read by ExpressionParser.
class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(tokenize(source)) {}

  Program run() {
    Program& program = names_;
    program.loop = symbol("loop");
    program.caller = symbol("caller");
    program.varargs = symbol("varargs");
    program.kwargs = symbol("kwargs");
    program.body = read_body({});
    return std::move(program);
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  /// Statements up to a tag whose name is in `ends`; that tag is read up to its name. Without ends: all.
  Body read_body(Ends ends) {
    const Depth depth(*this);
    Body body;
    for (;;) {
      const Token& token = next();
      switch (token.kind) {
        case Kind::Data: {
          Statement& s = add(body, Statement::Kind::Data, token);
          s.data = Text(token.text);
          break;
        }
        case Kind::VariableBegin: {
          Statement& s = add(body, Statement::Kind::Output, token);
          s.expression = read_tuple(true);
          expect(Kind::VariableEnd, "}}");
          break;
        }
        case Kind::BlockBegin: {
          const Token& name = next();
          if (name.kind != Kind::Name) fail_at(name, "a tag begins with its name");
          if (std::find(ends.begin(), ends.end(), name.text) != ends.end()) {
            end_tag_ = &name;
            return body;
          }
          read_tag(name, body);
          break;
        }
        default:
          if (ends.size() == 0) return body;
          fail_at(token, fmt::format("the template ends where {} is wanted", *(ends.end() - 1)));
      }
    }
  }

  static Statement& add(Body& body, Statement::Kind kind, const Token& at) {
    Statement& s = body.emplace_back();
    s.kind = kind;
    s.offset = at.offset;
    return s;
  }

  void end_of_tag() { expect(Kind::BlockEnd, "%}"); }

  void read_tag(const Token& tag, Body& body) {
    using Read = void (Parser::*)(Statement&);
    static const std::map<std::string_view, std::pair<Statement::Kind, Read>> kTags = {
        {"if", {Statement::Kind::If, &Parser::read_if}},
        {"for", {Statement::Kind::For, &Parser::read_for}},
        {"set", {Statement::Kind::Set, &Parser::read_set}},
        {"macro", {Statement::Kind::Macro, &Parser::read_macro}},
        {"call", {Statement::Kind::Call, &Parser::read_call}},
        {"filter", {Statement::Kind::Filter, &Parser::read_filter_block}},
        {"with", {Statement::Kind::With, &Parser::read_with}},
        {"generation", {Statement::Kind::Scope, &Parser::read_generation}},
        {"break", {Statement::Kind::Break, &Parser::read_loop_control}},
        {"continue", {Statement::Kind::Continue, &Parser::read_loop_control}},
    };
    const auto found = kTags.find(tag.text);
    if (found == kTags.end()) {
      fail_at(tag,
              fmt::format("there is no tag '{}' here; known: if, for, set, macro, call, filter, with, raw, "
                          "generation, break, continue",
                          tag.text.substr(0, 40)));
    }
    Statement& s = add(body, found->second.first, tag);
    (this->*found->second.second)(s);
  }

  void read_if(Statement& s) {
    for (;;) {
      Statement::Branch& branch = s.branches.emplace_back();
      branch.condition = read_tuple(false);
      end_of_tag();
      branch.body = read_body({"elif", "else", "endif"});
      if (end_tag_->text != "elif") break;
    }
    if (end_tag_->text == "else") {
      end_of_tag();
      s.otherwise = read_body({"endif"});
    }
    end_of_tag();
  }

  void read_for(Statement& s) {
    s.target = read_target(false);
    if (!take_name("in")) fail_at(peek(), "'in' is wanted");
    s.expression = read_tuple(false);
    if (take_name("if")) s.condition = read_expression(true);
    s.recursive = take_name("recursive");
    end_of_tag();
    const int outer = std::exchange(loops_, loops_ + 1);
    s.body = read_body({"else", "endfor"});
    loops_ = outer;
    if (end_tag_->text == "else") {
      end_of_tag();
      s.otherwise = read_body({"endfor"});
    }
    end_of_tag();
  }

  void read_set(Statement& s) {
    s.target = read_target(true);
    if (take_operator("=")) {
      s.expression = read_tuple(true);
      end_of_tag();
      return;
    }
    s.kind = Statement::Kind::SetBlock;
    if (!s.target.several.empty()) fail_at(peek(), "'=' is wanted");
    if (peek().text == "|") s.expression = read_filters(make(Expression::Kind::Block, s.offset));
    end_of_tag();
    s.body = read_body({"endset"});
    end_of_tag();
  }

  void read_macro(Statement& s) {
    const Token& name = next();
    if (name.kind != Kind::Name) fail_at(name, "the name of the macro is wanted");
    s.symbol = symbol(name.text);
    s.macro = read_parameters(name.text);
    end_of_tag();
    read_macro_body(s, "endmacro");
  }

  void read_call(Statement& s) {
    s.macro = peek().text == "(" ? read_parameters("caller") : std::make_unique<Macro>();
    s.macro->name = "caller";
    s.expression = read_expression(true);
    if (s.expression->kind != Expression::Kind::Call)
      throw SyntaxFailure(s.expression->offset, "a call is wanted");
    end_of_tag();
    read_macro_body(s, "endcall");
  }

  /// Notes which of the special names the body uses.
  void read_macro_body(Statement& s, std::string_view end) {
    const std::pair<Symbol, bool Macro::*> specials[] = {{names_.varargs, &Macro::uses_varargs},
                                                         {names_.kwargs, &Macro::uses_kwargs},
                                                         {names_.caller, &Macro::uses_caller}};
    bool before[3];
    for (size_t i = 0; i < 3; ++i) before[i] = std::exchange(is_read(specials[i].first), 0) != 0;
    const int outer = std::exchange(loops_, 0);
    s.body = read_body({end});
    loops_ = outer;
    for (size_t i = 0; i < 3; ++i) {
      (*s.macro).*specials[i].second = is_read(specials[i].first) != 0;
      if (before[i]) is_read(specials[i].first) = 1;
    }
    end_of_tag();
  }

  std::unique_ptr<Macro> read_parameters(std::string_view name) {
    auto macro = std::make_unique<Macro>();
    macro->name = name;
    expect_operator("(");
    while (!take_operator(")")) {
      if (!macro->parameters.empty()) {
        expect_operator(",");
        if (take_operator(")")) break;
      }
      const Token& parameter = next();
      if (parameter.kind != Kind::Name) fail_at(parameter, "the name of a parameter is wanted");
      Macro::Parameter& p = macro->parameters.emplace_back();
      p.name = parameter.text;
      p.symbol = symbol(parameter.text);
      if (take_operator("=")) {
        p.otherwise = read_expression(true);
      } else if (macro->parameters.size() > 1 && (macro->parameters.end() - 2)->otherwise) {
        fail_at(parameter, "a parameter without a default follows one that has a default");
      }
    }
    return macro;
  }

  void read_filter_block(Statement& s) {
    s.expression = read_filters(make(Expression::Kind::Block, s.offset), /*first_named=*/true);
    end_of_tag();
    s.body = read_body({"endfilter"});
    end_of_tag();
  }

  void read_with(Statement& s) {
    while (peek().kind != Kind::BlockEnd) {
      if (!s.assignments.empty()) expect_operator(",");
      auto& [target, value] = s.assignments.emplace_back();
      target = read_target(false);
      expect_operator("=");
      value = read_expression(true);
    }
    end_of_tag();
    s.body = read_body({"endwith"});
    end_of_tag();
  }

  void read_generation(Statement& s) {
    end_of_tag();
    s.body = read_body({"endgeneration"});
    end_of_tag();
  }

  void read_loop_control(Statement& s) {
    if (loops_ == 0) throw SyntaxFailure(s.offset, "break and continue belong into a loop");
    end_of_tag();
  }

  Target read_target(bool with_namespace) {
    Target first = read_one_target(with_namespace);
    if (peek().text != "," || peek().kind != Kind::Operator) return first;
    Target all;
    all.offset = first.offset;
    all.several.push_back(std::move(first));
    while (take_operator(",")) {
      if (peek().kind != Kind::Name && peek().text != "(") break;
      all.several.push_back(read_one_target(with_namespace));
    }
    return all;
  }

  Target read_one_target(bool with_namespace) {
    const Depth depth(*this);
    const Token& token = next();
    Target target;
    if (token.kind == Kind::Operator && token.text == "(") {
      target = read_target(with_namespace);
      expect_operator(")");
      return target;
    }
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None", "in",
                                                     "not",  "and",   "or",   "is",   "if",    "else"};
    if (token.kind != Kind::Name ||
        std::find(std::begin(kReserved), std::end(kReserved), token.text) != std::end(kReserved)) {
      fail_at(token, "a name to assign to is wanted");
    }
    target.offset = token.offset;
    target.symbol = symbol(token.text);
    if (with_namespace && take_operator(".")) {
      const Token& attribute = next();
      if (attribute.kind != Kind::Name) fail_at(attribute, "the name of an attribute is wanted");
      target.attribute = attribute.text;
      is_read(target.symbol) = 1;
    }
    return target;
  }

  int loops_ = 0;
  const Token* end_tag_ = nullptr;
};

}  // namespace

Program parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace redlite::chat::jinja
