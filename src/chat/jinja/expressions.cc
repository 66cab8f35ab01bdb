#include <algorithm>

#include "base/error.h"
#include "base/quote.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/enter.h"
#include "chat/jinja/strings.h"

namespace redlite::chat::jinja {

using Node = Expression::Kind;

const Value* Interpreter::find_variable(Symbol symbol) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    budget_.spend();
    const auto found = scope->variables.find(symbol);
    if (found != scope->variables.end()) return &found->second;
  }
  return nullptr;
}

Value Interpreter::evaluate(const Expression& e) {
  const Enter enter(*this);
  switch (e.kind) {
    case Node::Constant:
      return e.constant;
    case Node::Name:
      return evaluate_name(e);
    case Node::List:
      return make_list(evaluate_all(e.operands));
    case Node::Tuple:
      return make_list(evaluate_all(e.operands), List::Kind::Tuple);
    case Node::Dict:
      return evaluate_dict(e);
    case Node::Attribute: {
      const Value object = evaluate(*e.operands[0]);
      at_ = e.offset;
      return attribute(object, e.name);
    }
    case Node::Item: {
      const Value object = evaluate(*e.operands[0]);
      const Value key = evaluate(*e.operands[1]);
      at_ = e.offset;
      return item(object, key);
    }
    case Node::Slice:
      return evaluate_slice(e);
    case Node::Call:
      return evaluate_call(e);
    case Node::Filter:
      return evaluate_filter(e);
    case Node::Test:
      return evaluate_test(e);
    case Node::Block:
      RL_CHECK(block_ != nullptr, "a filter of a block outside of one");
      return *block_;
    case Node::Not:
      return !evaluate(*e.operands[0]).truth();
    case Node::And: {
      Value left = evaluate(*e.operands[0]);
      return left.truth() ? evaluate(*e.operands[1]) : left;
    }
    case Node::Or: {
      Value left = evaluate(*e.operands[0]);
      return left.truth() ? left : evaluate(*e.operands[1]);
    }
    case Node::Negate:
    case Node::Positive: {
      const Value value = evaluate(*e.operands[0]);
      at_ = e.offset;
      if (!value.is_number())
        raise("a sign before {}", value.is_undefined() ? value.undefined_reason() : value.kind());
      // 0.0 - x would lose the sign of zero.
      const Value factor(int64_t{e.kind == Node::Negate ? -1 : 1});
      return arithmetic(Operator::Multiply, value, factor, budget_);
    }
    case Node::Arithmetic:
      return evaluate_arithmetic(e);
    case Node::Compare:
      return evaluate_compare(e);
    case Node::Concat:
      return evaluate_concat(e);
    case Node::Conditional:
      if (evaluate(*e.operands[0]).truth()) return evaluate(*e.operands[1]);
      if (e.operands[2]) return evaluate(*e.operands[2]);
      return Value::undefined("the condition of an 'if' without 'else' was false");
  }
  RL_CHECK(false, "kind {}", static_cast<int>(e.kind));
  return {};
}

Value Interpreter::evaluate_name(const Expression& e) {
  at_ = e.offset;
  if (const Value* found = find_variable(e.symbol)) return *found;
  return Value::undefined(
      fmt::format("{} is undefined", quote(program_.names[static_cast<size_t>(e.symbol)])));
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const auto& expression : expressions) values.push_back(evaluate(*expression));
  return values;
}

Value Interpreter::evaluate_dict(const Expression& e) {
  Dict dict;
  for (size_t i = 0; i < e.operands.size(); i += 2) {
    Value key = evaluate(*e.operands[i]);
    Value value = evaluate(*e.operands[i + 1]);
    at_ = e.operands[i]->offset;
    dict.set(std::move(key), std::move(value));
  }
  return make_dict(std::move(dict));
}

Arguments Interpreter::evaluate_arguments(const std::vector<Argument>& arguments) {
  Arguments out;
  for (const Argument& argument : arguments) {
    Value value = evaluate(*argument.value);
    switch (argument.kind) {
      case Argument::Kind::Positional:
        out.positional.push_back(std::move(value));
        break;
      case Argument::Kind::Named:
        out.named.emplace_back(argument.name, std::move(value));
        break;
      case Argument::Kind::Unpacked:
        for (Value& item : items(value)) out.positional.push_back(std::move(item));
        break;
      case Argument::Kind::UnpackedNamed:
        if (!value.dict()) raise("** before {}, a dict is wanted", value.kind());
        budget_.spend(value.dict()->entries().size());
        for (const auto& [key, named] : value.dict()->entries()) {
          if (!key.text()) raise("** before a dict with a key that is {}", key.kind());
          out.named.emplace_back(key.text()->bytes(), named);
        }
        break;
    }
  }
  return out;
}

Value Interpreter::evaluate_slice(const Expression& e) {
  const Value object = evaluate(*e.operands[0]);
  int64_t bounds[3] = {0, 0, 1};
  bool given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!e.operands[i + 1]) continue;
    const Value bound = evaluate(*e.operands[i + 1]);
    at_ = e.operands[i + 1]->offset;
    if (bound.is_none()) continue;
    if (!bound.is_integer()) raise("a slice by {}, an integer is wanted", bound.kind());
    // More than any length; so that nothing below overflows.
    constexpr int64_t kFar = int64_t{1} << 40;
    bounds[i] = std::clamp(bound.integer(), -kFar, kFar);
    given[i] = true;
  }
  at_ = e.offset;
  const int64_t step = bounds[2];
  if (step == 0) raise("the step of a slice is 0");
  const Text* text = object.text();
  const List* list = object.list();
  if (object.is_undefined()) raise("{}", object.undefined_reason());
  if (!text && !(list && list->kind <= List::Kind::Tuple)) {
    return Value::undefined(fmt::format("a slice of {}", object.kind()));
  }
  std::vector<size_t> at;
  if (text) {
    budget_.spend_bytes(text->size());
    at = character_positions(text->bytes());
  }
  const auto n = static_cast<int64_t>(text ? at.size() - 1 : list->items.size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    if (!given[i]) return otherwise;
    const int64_t value = bounds[i] < 0 ? bounds[i] + n : bounds[i];
    return step > 0 ? std::clamp<int64_t>(value, 0, n) : std::clamp<int64_t>(value, -1, n - 1);
  };
  const int64_t begin = bound(0, step > 0 ? 0 : n - 1);
  const int64_t end = bound(1, step > 0 ? n : -1);
  if (text && step == 1) {
    return this->text(text->slice(at[static_cast<size_t>(begin)], at[static_cast<size_t>(end)]));
  }
  Text characters;
  std::vector<Value> picked;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    budget_.spend();
    const auto index = static_cast<size_t>(i);
    if (text) {
      characters.append(*text, at[index], at[index + 1]);
    } else {
      picked.push_back(list->items[index]);
    }
  }
  return text ? Value(std::move(characters)) : make_list(std::move(picked), list->kind);
}

Value Interpreter::evaluate_call(const Expression& e) {
  const Expression& callee = *e.operands[0];
  if (callee.kind == Node::Attribute) {
    const Value object = evaluate(*callee.operands[0]);
    at_ = callee.offset;
    if (has_method(object, callee.name)) {
      Arguments arguments = evaluate_arguments(e.arguments);
      at_ = callee.offset;
      return call_method(*this, object, callee.name, std::move(arguments));
    }
    const Value function = attribute(object, callee.name);
    Arguments arguments = evaluate_arguments(e.arguments);
    at_ = callee.offset;
    return call(function, std::move(arguments));
  }
  const Value function = evaluate(callee);
  Arguments arguments = evaluate_arguments(e.arguments);
  at_ = e.offset;
  return call(function, std::move(arguments));
}

Value Interpreter::evaluate_filter(const Expression& e) {
  const Value value = evaluate(*e.operands[0]);
  Arguments arguments = evaluate_arguments(e.arguments);
  at_ = e.offset;
  return filter(e.name, value, std::move(arguments));
}

Value Interpreter::evaluate_test(const Expression& e) {
  const Value value = evaluate(*e.operands[0]);
  Arguments arguments = evaluate_arguments(e.arguments);
  at_ = e.offset;
  return test(e.name, value, std::move(arguments));
}

Value Interpreter::evaluate_arithmetic(const Expression& e) {
  Value left = evaluate(*e.operands[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    const Value right = evaluate(*e.operands[i + 1]);
    at_ = e.offset;
    left = arithmetic(e.operators[i], left, right, budget_);
  }
  return left;
}

Value Interpreter::evaluate_compare(const Expression& e) {
  Value left = evaluate(*e.operands[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = evaluate(*e.operands[i + 1]);
    at_ = e.offset;
    const bool holds = [&] {
      switch (e.operators[i]) {
        case Operator::Equal:
          return equal(left, right, budget_);
        case Operator::NotEqual:
          return !equal(left, right, budget_);
        case Operator::Less:
          return less(left, right, budget_);
        case Operator::Greater:
          return less(right, left, budget_);
        case Operator::LessEqual:
          return less(left, right, budget_) || equal(left, right, budget_);
        case Operator::GreaterEqual:
          return less(right, left, budget_) || equal(left, right, budget_);
        case Operator::In:
          return contains(right, left);
        default:
          return !contains(right, left);
      }
    }();
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_concat(const Expression& e) {
  Text out;
  for (const auto& operand : e.operands) {
    const Value value = evaluate(*operand);
    at_ = operand->offset;
    out.append(str(value));
  }
  return text(std::move(out));
}

}  // namespace redlite::chat::jinja
