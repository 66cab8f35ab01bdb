#include "bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "base/error.h"

namespace redlite::bench {
namespace {

using model::LogitsFor;
using model::Token;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Counts the passes and the distinct experts of each, and from them the bytes they cannot but move.
class TrafficTap {
 public:
  TrafficTap(model::Runner& runner, const Traffic& traffic) : runner_(runner), traffic_(traffic) {
    runner_.set_tap(
        [this](model::Stage stage, int layer, int first, int width, std::span<const float> values) {
          if (stage != model::Stage::ExpertIds) return;
          if (layer == 0) finish_pass();
          position_ = first;
          n_tokens_ = static_cast<int>(values.size() / static_cast<size_t>(width));
          distinct_.push_back(static_cast<int>(std::set<float>(values.begin(), values.end()).size()));
        });
  }
  ~TrafficTap() { runner_.set_tap({}); }
  TrafficTap(const TrafficTap&) = delete;
  TrafficTap& operator=(const TrafficTap&) = delete;

  uint64_t bytes() {
    finish_pass();
    return bytes_;
  }

 private:
  void finish_pass() {
    if (!distinct_.empty()) bytes_ += traffic_.pass(position_, n_tokens_, distinct_);
    distinct_.clear();
  }

  model::Runner& runner_;
  const Traffic& traffic_;
  int position_ = 0, n_tokens_ = 0;
  std::vector<int> distinct_;  ///< of the pass that runs, by layer
  uint64_t bytes_ = 0;
};

/// Shows the progress of a runner's long passes while it lives.
class ShowProgress {
 public:
  ShowProgress(model::Runner& runner, Watcher& watcher, double done) : runner_(runner) {
    runner_.set_progress([&watcher, done](double tokens) { watcher.reach(done + tokens); });
  }
  ~ShowProgress() { runner_.set_progress({}); }
  ShowProgress(const ShowProgress&) = delete;
  ShowProgress& operator=(const ShowProgress&) = delete;

 private:
  model::Runner& runner_;
};

Counters count(const Subject& subject) {
  return subject.counters ? subject.counters() : Counters{};
}

/// After another program had the processor: wakes the threads and brings the weights near again, as the rival
/// warms up before it times. The sequence is left as it was.
void settle(model::Runner& runner, std::span<const Token> tokens) {
  const std::unique_ptr<model::Mark> place = runner.mark();
  const auto room = static_cast<size_t>(runner.capacity() - runner.position());
  runner.forward(tokens.first(std::min(tokens.size(), room)), LogitsFor::Last);
  runner.rewind(*place);
}

void check_decoded(const Test& test, size_t at, uint64_t value, const Text& text) {
  if (value == text.hashes[at]) return;
  fail(
      "{} at {}, token {}: the logits are not those of the text's first pass ({:016x}, before {:016x}); this "
      "is a "
      "fault of the program, and none of its figures count",
      test.name(), test.depth, at, value, text.hashes[at]);
}

/// The bare reads of the repetition that ended in front of token `end`.
void read_bare(const Subject& subject, const Text& text, size_t end, Measurement& m) {
  if (subject.replay == nullptr) return;
  const auto n = static_cast<size_t>(m.test.tokens);
  m.replay_seconds.push_back(subject.replay->read(std::span(text.experts).subspan(end - n, n)));
}

std::vector<Test> of_kind(const std::vector<Test>& tests, TestKind kind) {
  std::vector<Test> some;
  std::ranges::copy_if(tests, std::back_inserter(some), [&](const Test& test) { return test.kind == kind; });
  return some;
}

int64_t sum_of_tokens(const std::vector<Test>& tests) {
  int64_t sum = 0;
  for (const Test& test : tests) sum += test.tokens;
  return sum;
}

std::vector<Measurement> empty_measurements(const std::vector<Test>& tests) {
  std::vector<Measurement> measurements;
  for (const Test& test : tests) measurements.push_back({test, {}, {}, {}, 0, 0});
  return measurements;
}

}  // namespace

void Counters::add(const Counters& from, const Counters& to) {
  hits += to.hits - from.hits;
  selections += to.selections - from.selections;
  bytes_read += to.bytes_read - from.bytes_read;
  stall_seconds += to.stall_seconds - from.stall_seconds;
  if (stage_seconds.empty()) {
    for (const auto& [stage, seconds] : to.stage_seconds) stage_seconds.emplace_back(stage, 0.0);
  }
  for (size_t i = 0; i < to.stage_seconds.size(); ++i)
    stage_seconds[i].second += to.stage_seconds[i].second - from.stage_seconds[i].second;
}

double median(std::vector<double> values) {
  RL_CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

int64_t Bench::tokens_needed(const std::vector<Test>& tests, int repetitions) {
  int64_t needed = sum_of_tokens(of_kind(tests, TestKind::Decode)) * (repetitions + int64_t{1});
  for (const Test& test : of_kind(tests, TestKind::Prefill)) needed = std::max<int64_t>(needed, test.tokens);
  return needed;
}

std::vector<Measurement> Bench::run(Subject& subject, const std::vector<Test>& tests) {
  RL_CHECK(!tests.empty());
  reach_depth(subject, tests.front().depth);
  std::vector<Measurement> all;
  if (const std::vector<Test> prefills = of_kind(tests, TestKind::Prefill); !prefills.empty()) {
    all = run_prefills(subject, prefills);
    subject.runner.rewind(*subject.reached);
  }
  if (const std::vector<Test> decodes = of_kind(tests, TestKind::Decode); !decodes.empty()) {
    const std::vector<Measurement> some = run_decodes(subject, decodes);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void Bench::reach_depth(Subject& subject, int depth) {
  if (subject.reached != nullptr && subject.reached_depth <= depth) {
    subject.runner.rewind(*subject.reached);
  } else {
    subject.runner.reset();
    subject.reached_depth = 0;
  }
  const std::vector<Token> tokens = random_tokens(depth, subject.n_vocab, 1);
  if (const auto rest = std::span(tokens).subspan(static_cast<size_t>(subject.reached_depth));
      !rest.empty()) {
    watcher_.begin("reading", rest.size());
    const ShowProgress progress(subject.runner, watcher_, 0);
    subject.runner.forward(rest, LogitsFor::None);
    watcher_.end();
  }
  subject.reached = subject.runner.mark();
  subject.reached_depth = depth;
}

std::vector<Measurement> Bench::run_prefills(const Subject& subject, const std::vector<Test>& tests) {
  model::Runner& runner = subject.runner;
  const std::unique_ptr<model::Mark> start = runner.mark();
  std::vector<Measurement> measurements = empty_measurements(tests);
  watcher_.begin("prefill", static_cast<uint64_t>(sum_of_tokens(tests) * (repetitions_ + 1)));
  double done = 0;
  // The warm-up reads what the last repetition will, which a cache has forgotten by then as far as it would.
  for (int repetition = -1; repetition < repetitions_; ++repetition) {
    const int content = repetition < 0 ? repetitions_ - 1 : repetition;
    for (Measurement& m : measurements) {
      const std::vector<Token> tokens = random_tokens(m.test.tokens, subject.n_vocab, 100 + content);
      runner.rewind(*start);
      uint64_t value = 0;
      {
        const ShowProgress progress(runner, watcher_, done);
        if (repetition < 0) {
          TrafficTap tap(runner, subject.traffic);
          value = hash(runner.forward(tokens, LogitsFor::Last));
          m.floor_bytes = static_cast<double>(tap.bytes()) / m.test.tokens;
        } else {
          const Counters before = count(subject);
          const double start_time = now();
          const std::span<const float> logits = runner.forward(tokens, LogitsFor::Last);
          m.seconds.push_back(now() - start_time);
          m.counters.add(before, count(subject));
          value = hash(logits);
          m.fingerprint = m.fingerprint * 31 + value;
        }
      }
      fingerprints_.check(fmt::format("{} at {}, prompt {}", m.test.name(), m.test.depth, content), value);
      done += m.test.tokens;
      watcher_.reach(done);
    }
    if (repetition >= 0 && run_rival(measurements)) settle(runner, random_tokens(32, subject.n_vocab, 99));
  }
  watcher_.end();
  return measurements;
}

std::vector<Measurement> Bench::run_decodes(const Subject& subject, const std::vector<Test>& tests) {
  model::Runner& runner = subject.runner;
  // All of it fits into the runner's context, an int.
  const int n = static_cast<int>(sum_of_tokens(tests) * (repetitions_ + 1));
  const auto [place, is_new] = texts_.try_emplace(tests.front().depth);
  Text& text = place->second;
  const std::unique_ptr<model::Mark> start = runner.mark();
  Writer writer(subject.n_vocab);
  if (is_new) text.tokens.push_back(writer.first());
  std::vector<Measurement> measurements = empty_measurements(tests);
  watcher_.begin("decode", static_cast<uint64_t>(n));
  size_t at = 0;
  for (int repetition = -1; repetition < repetitions_; ++repetition) {
    for (Measurement& m : measurements) {
      const Counters before = count(subject);
      double seconds = 0;
      for (int i = 0; i < m.test.tokens; ++i, ++at) {
        const int position = runner.position();
        const double start_time = now();
        const std::span<const float> logits = runner.forward({&text.tokens[at], 1}, LogitsFor::Last);
        seconds += now() - start_time;
        const uint64_t value = hash(logits);
        if (is_new) {
          text.hashes.push_back(value);
          text.tokens.push_back(writer.next(logits));
        }
        check_decoded(m.test, at, value, text);
        watcher_.reach(static_cast<double>(at + 1));
        if (repetition < 0) continue;
        m.floor_bytes +=
            static_cast<double>(subject.traffic.decode(position)) / (repetitions_ * m.test.tokens);
        m.fingerprint = m.fingerprint * 31 + value;
      }
      if (repetition < 0) continue;
      m.seconds.push_back(seconds);
      m.counters.add(before, count(subject));
      if (!is_new) read_bare(subject, text, at, m);
    }
    if (repetition >= 0 && run_rival(measurements))
      settle(runner, std::span(text.tokens).subspan(at - std::min<size_t>(at, 8), std::min<size_t>(at, 8)));
  }
  watcher_.end();
  if (is_new) read_again(subject, *start, text, measurements);
  return measurements;
}

void Bench::read_again(const Subject& subject, const model::Mark& start, Text& text,
                       std::vector<Measurement>& measurements) {
  subject.runner.rewind(start);
  watcher_.begin("checking", text.hashes.size());
  ExpertsTap tap(subject.runner);
  size_t at = 0;
  for (int repetition = -1; repetition < repetitions_; ++repetition) {
    for (Measurement& m : measurements) {
      for (int i = 0; i < m.test.tokens; ++i, ++at) {
        check_decoded(m.test, at, hash(subject.runner.forward({&text.tokens[at], 1}, LogitsFor::Last)), text);
        text.experts.push_back(tap.take());
        watcher_.reach(static_cast<double>(at + 1));
      }
      if (repetition >= 0) read_bare(subject, text, at, m);
    }
  }
  watcher_.end();
}

bool Bench::run_rival(const std::vector<Measurement>& alternating) {
  if (rival_ == nullptr) return false;
  const auto wanted = [&](const Measurement& m) { return rival_->measures(m.test); };
  if (!std::ranges::any_of(alternating, wanted)) return false;
  rival_->run();
  return true;
}

}  // namespace redlite::bench
