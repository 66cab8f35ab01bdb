#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redlite::bench {

/// What is timed: reading `tokens` tokens at once, or decoding them one by one, after `depth` others.
enum class TestKind : bool { Prefill, Decode };
struct Test {
  TestKind kind = TestKind::Prefill;
  int tokens = 0;
  int depth = 0;
  bool operator==(const Test&) const = default;
  std::string name() const;  ///< "prefill 64", "decode 64"
};

/// Tokens a second that a rival reached in a test.
struct RivalSample {
  Test test;
  std::vector<double> rates;
};

/// Reads what `llama-bench -o json` prints: an array of objects with n_prompt, n_gen, n_depth and samples_ts
/// or avg_ts. Tests that read and then decode (-pg) are left out. Throws Error on anything else.
std::vector<RivalSample> parse_llama_bench(std::string_view json);

/// Another program's benchmark, run alternately with ours.
class Rival {
 public:
  explicit Rival(std::string command) : command_(std::move(command)) {}

  /// Runs the command once without counting its figures: its caches are warm then, and what it measures is
  /// known. Throws Error when it fails or measures none of `tests`.
  void warm_up(const std::vector<Test>& tests);
  /// Runs the command once more and keeps its figures.
  void run();
  bool measures(const Test& test) const;
  /// What it reached in a test since the warm-up.
  std::vector<double> rates(const Test& test) const;
  const std::string& command() const { return command_; }

 private:
  std::string command_;
  std::vector<Test> measured_;
  std::vector<RivalSample> samples_;
};

}  // namespace redlite::bench
