#include <algorithm>
#include <span>

#include "base/error.h"
#include "engine/open_runner.h"
#include "library/model_impl.h"
#include "session/answer_writer.h"

namespace redlite {
namespace {

engine::RunnerOptions runner_options(const SessionOptions& options) {
  if (options.context < 1) fail("context {}: give at least 1 token", options.context);
  engine::RunnerOptions runner;
  const std::string_view backends[] = {"cpu", "cuda", "emulator", "reference"};
  if (std::ranges::find(backends, options.backend) == std::end(backends))
    fail("backend '{}': give cpu, cuda, emulator or reference", options.backend);
  runner.backend = options.backend;
  if (options.cache_mib) runner.cache_mib = std::to_string(*options.cache_mib);
  runner.threads = options.threads;
  runner.prefetch = options.prefetch ? "on" : "off";
  runner.kv = options.half_kv ? "f16" : "f32";
  return runner;
}

session::Request request(std::span<const Token> prompt, const GenerateOptions& options) {
  if (options.max_tokens < 1) fail("max_tokens {}: give at least 1", options.max_tokens);
  session::Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = options.max_tokens;
  request.sampler = {.temperature = options.temperature,
                     .top_k = options.top_k,
                     .top_p = options.top_p,
                     .min_p = options.min_p,
                     .repeat_penalty = options.repeat_penalty,
                     .presence_penalty = options.presence_penalty,
                     .frequency_penalty = options.frequency_penalty,
                     .seed = options.seed};
  request.stop = options.stop;
  request.ignore_end = options.ignore_end;
  return request;
}

}  // namespace

struct Session::Impl {
  Impl(const Model::Impl& m, const SessionOptions& options)
      : opened(m), open(engine::open_runner(m.model, runner_options(options), options.context)) {}

  /// Appends the token that an answer ended with, and these.
  std::span<const float> forward(std::span<const Token> tokens, model::LogitsFor which) {
    const int n_vocab = opened.model.config().n_vocab;
    for (const Token token : tokens) {
      if (token < 0 || token >= n_vocab)
        fail("token id {} is outside the model's vocabulary of {}", token, n_vocab);
    }
    if (pending.empty()) return open.runner->forward(tokens, which);
    std::vector<Token> all = std::move(pending);
    pending.clear();
    const auto first = all.size();
    all.insert(all.end(), tokens.begin(), tokens.end());
    const std::span<const float> logits = open.runner->forward(all, which);
    return which == model::LogitsFor::All ? logits.subspan(first * static_cast<size_t>(n_vocab)) : logits;
  }

  void record(const model::Stage stage, std::span<const float> values) {
    if (stage != model::Stage::ExpertIds) return;
    std::vector<int32_t> ids(values.size());
    std::ranges::transform(values, ids.begin(), [](float id) { return static_cast<int32_t>(id); });
    routing_by_layer.push_back(std::move(ids));
    // A pass shows layer after layer, each with all its tokens.
    const auto layers = static_cast<size_t>(opened.model.config().n_layers);
    if (routing_by_layer.size() < layers) return;
    const auto used = static_cast<size_t>(opened.model.config().n_experts_used);
    for (size_t t = 0; t < ids_of_pass(); t += used) {
      for (const std::vector<int32_t>& layer : routing_by_layer)
        routing.insert(routing.end(), layer.begin() + static_cast<std::ptrdiff_t>(t),
                       layer.begin() + static_cast<std::ptrdiff_t>(t + used));
    }
    routing_by_layer.clear();
  }
  size_t ids_of_pass() const { return routing_by_layer.front().size(); }

  const Model::Impl& opened;
  engine::OpenRunner open;
  std::vector<Token> pending;  ///< of the sequence, but not yet computed
  std::vector<std::vector<int32_t>> routing_by_layer;
  std::vector<int32_t> routing;
};

Session::Session(const Model& model, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(*model.impl_, options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

std::span<const float> Session::forward(std::span<const Token> tokens, bool all) {
  if (tokens.empty()) fail("no tokens: give at least one");
  return impl_->forward(tokens, all ? model::LogitsFor::All : model::LogitsFor::Last);
}

struct Session::Answer::Impl {
  Impl(Session::Impl& s, session::Request r, std::span<const float> l)
      : session(s),
        request(std::move(r)),
        // The answer's last token is not computed and needs no room.
        writer(s.opened.tokenizer, request, s.open.runner->capacity() - s.open.runner->position() + 1),
        logits(l) {}

  Session::Impl& session;
  session::Request request;
  session::AnswerWriter writer;
  std::span<const float> logits;
  std::optional<Token> next;  ///< to be appended before the next token is chosen
  std::string_view reason;
};

Session::Answer::Answer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Answer::~Answer() = default;
Session::Answer::Answer(Answer&&) noexcept = default;
Session::Answer& Session::Answer::operator=(Answer&&) noexcept = default;

std::optional<Piece> Session::Answer::next() {
  Impl& answer = *impl_;
  if (!answer.reason.empty()) return std::nullopt;
  if (answer.next) answer.logits = answer.session.forward({}, model::LogitsFor::Last);
  const session::AnswerWriter::Step step = answer.writer.step(answer.logits);
  answer.next = step.next;
  if (step.end) answer.reason = session::finish_reason_name(step.end->reason);
  const bool chosen = !step.piece.tokens.empty();
  if (chosen) answer.session.pending = {step.piece.tokens.front().token};
  if (!chosen && step.piece.text.empty()) return std::nullopt;
  return Piece{chosen ? step.piece.tokens.front().token : -1, step.piece.text};
}

std::string_view Session::Answer::finish_reason() const {
  return impl_->reason;
}

Session::Answer Session::generate(std::span<const Token> prompt, const GenerateOptions& options) {
  if (prompt.empty()) fail("the prompt is empty: give at least one token");
  session::Request r = request(prompt, options);
  const std::span<const float> logits = impl_->forward(prompt, model::LogitsFor::Last);
  return Answer(std::make_unique<Answer::Impl>(*impl_, std::move(r), logits));
}

int Session::position() const {
  return impl_->open.runner->position() + static_cast<int>(impl_->pending.size());
}

int Session::capacity() const {
  return impl_->open.runner->capacity();
}

void Session::reset() {
  impl_->pending.clear();
  impl_->open.runner->reset();
}

CacheStatistics Session::cache_statistics() const {
  if (impl_->open.cpu == nullptr) return {};
  const experts::CacheStats stats = impl_->open.cpu->cache_stats();
  return {stats.hits,       stats.misses,     stats.prefetch_late,
          stats.prefetched, stats.bytes_read, stats.stall_seconds};
}

void Session::record_routing(bool on) {
  if (!on) return impl_->open.runner->set_tap({});
  impl_->open.runner->set_tap(
      [impl = impl_.get()](model::Stage stage, int, int, int, std::span<const float> values) {
        impl->record(stage, values);
      });
}

RoutingTrace Session::take_routing() {
  const model::Config& config = impl_->opened.model.config();
  return {config.n_layers, config.n_experts_used, std::exchange(impl_->routing, {})};
}

}  // namespace redlite
