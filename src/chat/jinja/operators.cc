#include <cmath>

#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"

namespace redlite::chat::jinja {
namespace {

std::string_view symbol_of(Operator op) {
  switch (op) {
    case Operator::Add:
      return "+";
    case Operator::Subtract:
      return "-";
    case Operator::Multiply:
      return "*";
    case Operator::Divide:
      return "/";
    case Operator::FloorDivide:
      return "//";
    case Operator::Modulo:
      return "%";
    default:
      return "**";
  }
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    bool overflow = false;
    if (exponent & 1) overflow = __builtin_mul_overflow(result, base, &result);
    exponent >>= 1;
    if (exponent > 0) overflow |= __builtin_mul_overflow(base, base, &base);
    if (overflow) raise("the result of ** has more than 64 bits");
  }
  return result;
}

Value integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::Add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::Subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::Multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::Divide:
      return static_cast<double>(a) / static_cast<double>(b);
    case Operator::FloorDivide:
    case Operator::Modulo: {
      if (b == -1) {  // the quotient of the smallest integer overflows
        if (op == Operator::Modulo) return int64_t{0};
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      const bool inexact_negative = a % b != 0 && (a < 0) != (b < 0);
      return op == Operator::Modulo ? a % b + (inexact_negative ? b : 0) : a / b - (inexact_negative ? 1 : 0);
    }
    default:
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      return power(a, b);
  }
  if (overflow) raise("the result of {} has more than 64 bits", symbol_of(op));
  return result;
}

Value floats(Operator op, double a, double b) {
  switch (op) {
    case Operator::Add:
      return a + b;
    case Operator::Subtract:
      return a - b;
    case Operator::Multiply:
      return a * b;
    case Operator::Divide:
      return a / b;
    case Operator::FloorDivide:
      return std::floor(a / b);
    case Operator::Modulo: {
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    default:
      return std::pow(a, b);
  }
}

Value repeat_value(const Value& value, int64_t times, Budget& budget) {
  if (const Text* text = value.text()) return repeat(*text, times, budget);
  std::vector<Value> items;
  for (int64_t i = 0; i < times && !value.list()->items.empty(); ++i) {
    budget.spend(value.list()->items.size());
    items.insert(items.end(), value.list()->items.begin(), value.list()->items.end());
  }
  return make_list(std::move(items), value.list()->kind);
}

bool is_sequence(const Value& value) {
  return value.text() || (value.list() && value.list()->kind <= List::Kind::Tuple);
}

}  // namespace

Value arithmetic(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (op == Operator::Modulo && a.text()) return percent_format(*a.text(), b, budget);
  if (a.is_number() && b.is_number()) {
    const bool divides = op == Operator::Divide || op == Operator::FloorDivide || op == Operator::Modulo;
    if ((divides && b.number() == 0) || (op == Operator::Power && a.number() == 0 && b.number() < 0)) {
      raise("division by zero");
    }
    return a.is_integer() && b.is_integer() ? integers(op, a.integer(), b.integer())
                                            : floats(op, a.number(), b.number());
  }
  if (op == Operator::Add && a.text() && b.text()) {
    const bool markup = a.text()->is_markup() || b.text()->is_markup();
    Text out = markup ? escape_html(*a.text()) : *a.text();
    out.append(markup ? escape_html(*b.text()) : *b.text());
    budget.spend_bytes(out.size());
    return out;
  }
  if (op == Operator::Add && is_sequence(a) && is_sequence(b) && a.list() && b.list() &&
      a.list()->kind == b.list()->kind) {
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    budget.spend(items.size());
    return make_list(std::move(items), a.list()->kind);
  }
  if (op == Operator::Multiply && is_sequence(a) && b.is_integer())
    return repeat_value(a, b.integer(), budget);
  if (op == Operator::Multiply && a.is_integer() && is_sequence(b))
    return repeat_value(b, a.integer(), budget);
  if (a.is_undefined()) raise("{}", a.undefined_reason());
  if (b.is_undefined()) raise("{}", b.undefined_reason());
  raise("{} {} {} is not possible", a.kind(), symbol_of(op), b.kind());
}

}  // namespace redlite::chat::jinja
