#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "base/error.h"
#include "constrain/json.h"

namespace redlite::constrain {
namespace {

constexpr size_t kMaxDigits = 18;    // every such number is an int64, and finite with any exponent below
constexpr size_t kMaxFraction = 17;  // a double has no more
constexpr size_t kMaxFractionOfLimit = 30;

/// Digits in front of `next`.
class Digits {
 public:
  explicit Digits(GrammarBuilder& b) : b_(b) {}

  NodeId digit(int low, int high, NodeId next) {
    if (low > high) return b_.never();
    return b_.byte_range(static_cast<uint8_t>('0' + low), static_cast<uint8_t>('0' + high), next);
  }
  NodeId exactly(size_t n, NodeId next) {
    for (; n > 0; --n) next = digit(0, 9, next);
    return next;
  }
  NodeId at_most(size_t n, NodeId next) {
    NodeId out = next;
    for (; n > 0; --n) out = b_.optional(digit(0, 9, out), next);
    return out;
  }

 private:
  GrammarBuilder& b_;
};

/// A decimal number that is not negative.
struct Decimal {
  std::string whole;     ///< at least one digit
  std::string fraction;  ///< maybe none
};

Decimal to_decimal(double value) {
  char text[400];
  const auto end =
      std::to_chars(text, text + sizeof(text), value + 0.0 /* not -0 */, std::chars_format::fixed).ptr;
  const std::string all(text, end);
  const size_t point = std::min(all.find('.'), all.size());
  return {all.substr(0, point), point < all.size() ? all.substr(point + 1) : ""};
}

bool zeros_from(const std::string& digits, size_t at) {
  return at >= digits.size() || digits.find_first_not_of('0', at) == std::string::npos;
}

/// Numbers from low to high that are not negative, digit by digit: as long as the digits are those of a
/// limit, that limit binds the next one.
class RangeWriter {
 public:
  RangeWriter(GrammarBuilder& b, Decimal low, Decimal high, bool above_low, bool below_high,
              size_t max_fraction, NodeId next)
      : b_(b),
        digits_(b),
        low_(std::move(low)),
        high_(std::move(high)),
        above_low_(above_low),
        below_high_(below_high),
        max_fraction_(max_fraction),
        next_(next) {}

  NodeId write() {
    free_end_ = fraction(false, false);
    NodeId out = b_.never();
    for (size_t n = low_.whole.size(); n <= high_.whole.size(); ++n) {
      n_ = n;
      out = b_.either(out, whole(0, n == low_.whole.size(), n == high_.whole.size()));
    }
    return out;
  }

 private:
  NodeId whole(size_t at, bool on_low, bool on_high) {
    if (at == n_) return fraction(on_low, on_high);
    if (!on_low && !on_high && at > 0) return digits_.exactly(n_ - at, free_end_);
    const int least = at == 0 && n_ > 1 ? 1 : 0;
    const int from = on_low ? std::max(least, low_.whole[at] - '0') : least;
    const int to = on_high ? high_.whole[at] - '0' : 9;
    return split(from, to, on_low, on_high, [&](bool l, bool h) { return whole(at + 1, l, h); });
  }

  /// One digit of from..to; `rest` says what follows it, by the limits that still bind.
  template <typename Rest>
  NodeId split(int from, int to, bool on_low, bool on_high, Rest rest) {
    if (from > to) return b_.never();
    if (from == to) return digits_.digit(from, to, rest(on_low, on_high));
    NodeId out = b_.never();
    if (on_low) out = digits_.digit(from, from, rest(true, false));
    if (on_high) out = b_.either(out, digits_.digit(to, to, rest(false, true)));
    const int first = from + (on_low ? 1 : 0), last = to - (on_high ? 1 : 0);
    return first > last ? out : b_.either(out, digits_.digit(first, last, rest(false, false)));
  }

  /// Whether the number may end where the fraction's digits from `at` on are missing.
  bool may_end(size_t at, bool on_low, bool on_high) const {
    if (on_low && !(zeros_from(low_.fraction, at) && !above_low_)) return false;
    return !(on_high && below_high_ && zeros_from(high_.fraction, at));
  }

  NodeId fraction(bool on_low, bool on_high) {
    const NodeId end = may_end(0, on_low, on_high) ? next_ : b_.never();
    if (max_fraction_ == 0) return end;
    return b_.either(end, b_.literal(".", fraction_digit(0, on_low, on_high)));
  }

  NodeId fraction_digit(size_t at, bool on_low, bool on_high) {
    const int from = on_low && at < low_.fraction.size() ? low_.fraction[at] - '0' : 0;
    const int to = !on_high ? 9 : at < high_.fraction.size() ? high_.fraction[at] - '0' : 0;
    return split(from, to, on_low, on_high, [&](bool l, bool h) {
      const size_t used = at + 1;
      if (!l && !h) return digits_.at_most(max_fraction_ - used, next_);
      const NodeId end = may_end(used, l, h) ? next_ : b_.never();
      return used == max_fraction_ ? end : b_.either(end, fraction_digit(used, l, h));
    });
  }

  GrammarBuilder& b_;
  Digits digits_;
  const Decimal low_, high_;
  const bool above_low_, below_high_;
  const size_t max_fraction_;
  const NodeId next_;
  NodeId free_end_ = 0;
  size_t n_ = 0;  ///< digits before the point
};

NodeId free_number(GrammarBuilder& b, NodeId next) {
  Digits digits(b);
  const NodeId exponent_digits = digits.digit(0, 9, digits.at_most(1, next));
  const NodeId sign =
      b.any_of(std::array{exponent_digits, b.literal("+", exponent_digits), b.literal("-", exponent_digits)});
  const NodeId end = b.any_of(std::array{next, b.literal("e", sign), b.literal("E", sign)});
  const NodeId fraction =
      b.optional(b.literal(".", digits.digit(0, 9, digits.at_most(kMaxFraction - 1, end))), end);
  const NodeId whole =
      b.either(digits.digit(0, 0, fraction), digits.digit(1, 9, digits.at_most(kMaxDigits - 1, fraction)));
  return b.optional(b.literal("-", whole), whole);
}

Decimal of_integer(int64_t value) {
  return {std::to_string(value), ""};
}

}  // namespace

NodeId integer_between(GrammarBuilder& b, int64_t low, int64_t high, NodeId next) {
  low = std::max(low, -kMaxInteger);
  high = std::min(high, kMaxInteger);
  if (low > high) return b.never();
  NodeId out = b.never();
  if (high >= 0) {
    out = RangeWriter(b, of_integer(std::max<int64_t>(low, 0)), of_integer(high), false, false, 0, next)
              .write();
  }
  if (low < 0) {
    const Decimal least = of_integer(high < 0 ? -high : 1);
    out =
        b.either(out, b.literal("-", RangeWriter(b, least, of_integer(-low), false, false, 0, next).write()));
  }
  return out;
}

NodeId number_between(GrammarBuilder& b, const NumberRange& range, NodeId next) {
  if (!range.has_low && !range.has_high && range.fraction_digits < 0) return free_number(b, next);
  const double most = static_cast<double>(kMaxInteger);
  const double low = range.has_low ? range.low : -most;
  const double high = range.has_high ? range.high : most;
  if (!(low <= high)) return b.never();
  const auto part = [&](double from, double to, bool above, bool below) {
    Decimal least = to_decimal(from), greatest = to_decimal(to);
    if (greatest.whole.size() > kMaxDigits) greatest = {std::string(kMaxDigits, '9'), ""};
    if (least.whole.size() > kMaxDigits) fail("a limit of more than {} digits is not supported", kMaxDigits);
    const size_t limit_digits = std::max(least.fraction.size(), greatest.fraction.size());
    if (limit_digits > kMaxFractionOfLimit)
      fail("a limit of more than {} digits behind the point is not supported", kMaxFractionOfLimit);
    const size_t digits = range.fraction_digits >= 0 ? static_cast<size_t>(range.fraction_digits)
                                                     : std::max(kMaxFraction, limit_digits);
    return RangeWriter(b, std::move(least), std::move(greatest), above, below, digits, next).write();
  };
  NodeId out = b.never();
  if (high >= 0) {
    const bool clipped = low < 0;
    out = part(clipped ? 0 : low, high, !clipped && range.above_low, range.below_high);
  }
  if (low < 0) {
    const bool clipped = high > 0;
    const NodeId below = part(clipped ? 0 : -high, -low, !clipped && range.below_high, range.above_low);
    out = b.either(out, b.literal("-", below));
  }
  return out;
}

}  // namespace redlite::constrain
