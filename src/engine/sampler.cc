#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace redlite::engine {
namespace {

/// A double in [0, 1) from two outputs of the generator, the low half first: what libstdc++'s
/// uniform_real_distribution does, written out because the standard leaves it open.
double uniform(std::mt19937& random) {
  const double low = static_cast<double>(random());
  const double high = static_cast<double>(random());
  return std::min((low + high * 0x1p32) * 0x1p-64, 1.0 - 0x1p-53);
}

/// Best first. A total order, because logits are never NaN here.
constexpr auto kBetter = [](const auto& a, const auto& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
};

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  const SamplerOptions& o = options;
  for (const float value :
       {o.temperature, o.top_p, o.min_p, o.repeat_penalty, o.presence_penalty, o.frequency_penalty}) {
    if (!std::isfinite(value)) fail("a sampling setting is {}; it must be a number", value);
  }
  if (o.repeat_penalty <= 0) fail("the repeat penalty is {}; it must be above 0 (1: off)", o.repeat_penalty);
}

void Sampler::accept(model::Token token) {
  if (options_.penalty_last_n == 0) return;
  ++counts_[token];
  window_.push_back(token);
  if (options_.penalty_last_n > 0 && window_.size() > static_cast<size_t>(options_.penalty_last_n)) {
    const auto oldest = counts_.find(window_.front());
    if (--oldest->second == 0) counts_.erase(oldest);
    window_.pop_front();
  }
}

model::Token Sampler::sample(std::span<const float> logits) {
  RL_CHECK(!logits.empty());
  if (greedy()) return model::best_token(logits);
  if (!take_likely(logits)) take_all(logits);
  sorted_ = 0;
  if (!std::isfinite(max_logit())) fail("the model's logits are not finite: its weights must be damaged");

  apply_penalties();
  if (options_.temperature <= 0) {
    return std::min_element(candidates_.begin(), candidates_.end(), kBetter)->token;
  }
  keep_top_k();
  keep_top_p();
  keep_min_p();
  apply_temperature();
  return draw();
}

bool Sampler::penalizes() const {
  return options_.repeat_penalty != 1 || options_.presence_penalty != 0 || options_.frequency_penalty != 0;
}

void Sampler::take_all(std::span<const float> logits) {
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::isnan(logits[i]) ? -INFINITY : logits[i];
    candidates_[i] = {static_cast<model::Token>(i), logit, 0};
  }
}

/// The top_k best candidates and few others, where that is quick to tell; false, and nothing, elsewhere.
bool Sampler::take_likely(std::span<const float> logits) {
  constexpr size_t kPiece = 64;
  const size_t n_pieces = logits.size() / kPiece, k = static_cast<size_t>(std::max(options_.top_k, 0));
  if (penalizes() || options_.temperature <= 0 || k == 0 || k > n_pieces / 4) return false;
  // As many logits as the k-th greatest of pieces' maxima, or greater ones, are at least k.
  maxima_.resize(n_pieces);
  for (size_t piece = 0; piece < n_pieces; ++piece) {
    const float* from = &logits[piece * kPiece];
    float lanes[16];
    for (size_t j = 0; j < 16; ++j) lanes[j] = -INFINITY;
    for (size_t i = 0; i < kPiece; i += 16)
      for (size_t j = 0; j < 16; ++j) lanes[j] = from[i + j] > lanes[j] ? from[i + j] : lanes[j];
    maxima_[piece] = *std::max_element(lanes, lanes + 16);
  }
  std::vector<float>& order = order_ = maxima_;
  const auto kth = order.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(order.begin(), kth, order.end(), std::greater<>());
  const float least = *kth;
  if (!std::isfinite(least)) return false;
  candidates_.clear();
  const auto take = [&](size_t first, size_t end) {
    for (size_t i = first; i < end; ++i)
      if (logits[i] >= least) candidates_.push_back({static_cast<model::Token>(i), logits[i], 0});
  };
  for (size_t piece = 0; piece < n_pieces; ++piece)
    if (maxima_[piece] >= least) take(piece * kPiece, (piece + 1) * kPiece);
  take(n_pieces * kPiece, logits.size());
  return true;
}

void Sampler::apply_penalties() {
  if (!penalizes()) return;
  for (const auto& [token, count] : counts_) {
    if (token < 0 || static_cast<size_t>(token) >= candidates_.size()) continue;
    float& logit = candidates_[static_cast<size_t>(token)].logit;
    // A negative logit is multiplied: dividing it would make the token likelier.
    if (logit <= 0) {
      logit *= options_.repeat_penalty;
    } else {
      logit /= options_.repeat_penalty;
    }
    logit -= static_cast<float>(count) * options_.frequency_penalty + options_.presence_penalty;
  }
}

void Sampler::keep_top_k() {
  if (options_.top_k <= 0) return;
  const size_t k = std::min(static_cast<size_t>(options_.top_k), candidates_.size());
  sort_front(k);
  candidates_.resize(k);
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  softmax();
  float sum = 0;
  size_t keep = 0;
  while (keep < candidates_.size()) {
    if (keep == sorted_) sort_front(std::max<size_t>(256, 8 * sorted_));
    sum += candidates_[keep++].p;
    if (sum >= options_.top_p) break;
  }
  candidates_.resize(keep);
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  const float least = max_logit() + std::log(options_.min_p);
  std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
}

void Sampler::apply_temperature() {
  for (Candidate& c : candidates_) c.logit /= options_.temperature;
}

model::Token Sampler::draw() {
  const double random = uniform(random_);
  const float max = max_logit();
  double total = 0;
  for (Candidate& c : candidates_) {
    c.p = std::exp(c.logit - max);
    total += static_cast<double>(c.p);
  }
  const double target = total * random;
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += static_cast<double>(c.p);
    if (sum >= target) return c.token;
  }
  return candidates_.back().token;
}

void Sampler::softmax() {
  const float max = max_logit();
  float total = 0;
  for (Candidate& c : candidates_) {
    c.p = std::exp(c.logit - max);
    total += c.p;
  }
  for (Candidate& c : candidates_) c.p /= total;
}

float Sampler::max_logit() const {
  if (sorted_ > 0) return candidates_[0].logit;
  float max = -INFINITY;
  for (const Candidate& c : candidates_) max = std::max(max, c.logit);
  return max;
}

/// Sorts on until the `target` best candidates (all, if there are fewer) stand in front in order.
void Sampler::sort_front(size_t target) {
  const auto from = candidates_.begin() + static_cast<ptrdiff_t>(sorted_);
  if (target >= candidates_.size()) {
    std::sort(from, candidates_.end(), kBetter);
    sorted_ = candidates_.size();
    return;
  }
  const auto to = candidates_.begin() + static_cast<ptrdiff_t>(target);
  if (target - sorted_ <= 256) {
    std::partial_sort(from, to, candidates_.end(), kBetter);  // one pass, mostly against the heap's top
  } else {
    std::nth_element(from, to, candidates_.end(), kBetter);
    std::sort(from, to, kBetter);
  }
  sorted_ = target;
}

}  // namespace redlite::engine
