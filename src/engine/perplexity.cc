#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace redlite::engine {
namespace {

/// -ln p of a token: logits in float, their exponentials summed in double.
double negative_log_likelihood(std::span<const float> logits, model::Token token) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - max));
  const double nll = std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)] - max);
  if (!std::isfinite(nll)) fail("the model's logits are not finite: its weights must be damaged");
  return nll;
}

}  // namespace

Perplexity perplexity(model::Runner& runner, int n_vocab, std::span<const model::Token> tokens, int context,
                      model::Token bos, int most_windows,
                      const std::function<void(const Perplexity&, double)>& progress) {
  RL_CHECK(context >= 4, "a context of {}", context);
  const auto width = static_cast<size_t>(context);
  if (tokens.size() < width)
    fail("the text has {} tokens, a window {}; give a longer text or a smaller --context", tokens.size(),
         width);
  size_t n_windows = tokens.size() / width;
  if (most_windows > 0) n_windows = std::min(n_windows, static_cast<size_t>(most_windows));
  const size_t first = width / 2;

  Perplexity result;
  double sum = 0, sum_of_squares = 0, read = 0;
  double part = 0;  // of the window that forward() was not told of
  runner.set_progress([&](double done) {
    if (progress) progress(result, read + part + done);
  });
  for (size_t w = 0; w < n_windows; ++w) {
    std::vector<model::Token> window(tokens.begin() + static_cast<ptrdiff_t>(w * width),
                                     tokens.begin() + static_cast<ptrdiff_t>((w + 1) * width));
    const std::vector<model::Token> targets = window;
    if (bos >= 0) window.front() = bos;
    runner.reset();
    part = 0;
    runner.forward(std::span(window).first(first), model::LogitsFor::None);
    part = static_cast<double>(first);
    const std::span<const float> logits =
        runner.forward(std::span(window).subspan(first, width - first - 1), model::LogitsFor::All);
    for (size_t i = first; i + 1 < width; ++i) {
      const std::span<const float> row = logits.subspan((i - first) * static_cast<size_t>(n_vocab), n_vocab);
      const double nll = negative_log_likelihood(row, targets[i + 1]);
      sum += nll;
      sum_of_squares += nll * nll;
      ++result.scored;
    }
    ++result.windows;
    const auto n = static_cast<double>(result.scored);
    const double mean = sum / n;
    const double variance = sum_of_squares / n - mean * mean;
    result.value = std::exp(mean);
    result.error = variance > 0 && n > 1 ? std::sqrt(variance / (n - 1)) * result.value : 0;
    read += static_cast<double>(width);
    if (progress) progress(result, read);
  }
  runner.set_progress({});
  return result;
}

}  // namespace redlite::engine
