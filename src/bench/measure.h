#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/replay.h"
#include "bench/rival.h"
#include "bench/traffic.h"
#include "bench/workload.h"
#include "model/runner.h"

namespace redlite::bench {

/// What a runner counts, since it was made.
struct Counters {
  uint64_t hits = 0;        ///< selected experts whose bytes were in memory
  uint64_t selections = 0;  ///< of experts
  uint64_t bytes_read = 0;  ///< from the files, by us
  double stall_seconds = 0;
  std::vector<std::pair<std::string, double>> stage_seconds;  ///< the same stages each time

  /// Adds what was counted between two moments.
  void add(const Counters& from, const Counters& to);
};

/// A runner under test. `counters` may be empty.
struct Subject {
  model::Runner& runner;
  int n_vocab;
  const Traffic& traffic;
  std::function<Counters()> counters = {};
  /// Of a runner whose weights lie in this machine's memory; otherwise nullptr.
  const Replay* replay = nullptr;
  /// How far the text of the depths was read last, for Bench; nullptr: not at all.
  std::unique_ptr<model::Mark> reached = nullptr;
  int reached_depth = 0;
};

/// The repetitions of a test.
struct Measurement {
  Test test;
  std::vector<double> seconds;         ///< of each repetition
  std::vector<double> replay_seconds;  ///< of the same tokens' bare reads behind it; empty: not measured
  Counters counters;                   ///< of all repetitions
  double floor_bytes = 0;              ///< a token, by Traffic
  uint64_t fingerprint = 0;            ///< of the logits of all repetitions
};

double median(std::vector<double> values);

/// Called while tokens go by that no measurement is of: what is going on, tokens done and to do.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void begin(const std::string& what, uint64_t tokens) = 0;
  virtual void reach(double tokens) = 0;
  virtual void end() = 0;
};

/// Runs tests and checks in the same run that what was timed was computed right.
///
/// Prefill reads random tokens, others in each repetition: a cache of experts must not know a prompt already.
/// Decode writes a text, each repetition where the last one stopped, for the same reason; sampling is not
/// part of the time, as in llama-bench. With other cache sizes the same text is decoded. A depth is really
/// read; every prefill starts there, and so does the text.
///
/// Every logit of every repetition is compared, as a hash, with that of a second pass over the text and with
/// that of the same repetition with other cache sizes: Error if a bit differs.
class Bench {
 public:
  Bench(int repetitions, Rival* rival, Watcher& watcher)
      : repetitions_(repetitions), rival_(rival), watcher_(watcher) {}

  /// Most tokens that the tests of one depth put into a sequence.
  static int64_t tokens_needed(const std::vector<Test>& tests, int repetitions);

  /// Runs tests of one depth, the prefills first; the kinds' repetitions alternate with each other and with
  /// the rival.
  std::vector<Measurement> run(Subject& subject, const std::vector<Test>& tests);

 private:
  /// Goes on from the depth reached last, if that is not beyond.
  void reach_depth(Subject& subject, int depth);
  std::vector<Measurement> run_prefills(const Subject& subject, const std::vector<Test>& tests);
  std::vector<Measurement> run_decodes(const Subject& subject, const std::vector<Test>& tests);
  /// Decodes a new text again from `start` on: checks its logits, notes its experts, and has them read bare
  /// behind each repetition.
  void read_again(const Subject& subject, const model::Mark& start, Text& text,
                  std::vector<Measurement>& measurements);
  /// Runs the rival if it measures any of these tests; says whether it did.
  bool run_rival(const std::vector<Measurement>& alternating);

  int repetitions_;
  Rival* rival_;
  Watcher& watcher_;
  Fingerprints fingerprints_;
  std::map<int, Text> texts_;  ///< by depth
};

}  // namespace redlite::bench
