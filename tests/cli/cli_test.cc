// The program as a user meets it: exit statuses, messages, and switches that do what they say.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"

namespace redlite {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int status = -1;
  std::string out, err;
};

/// A child program whose standard streams are files, so that nothing can block on a full pipe.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments, const std::string& stdout_to = "") {
    static int serial = 0;
    base_ = fmt::format("{}redlite_cli_{}_{}", ::testing::TempDir(), ::getpid(), ++serial);
    std::vector<std::string> words{REDLITE_BINARY};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    for (const char* stream : {".out", ".err"}) write_file_atomically(base_ + stream, {});
    pid_ = ::fork();
    if (pid_ == 0) {
      if (!std::freopen((stdout_to.empty() ? base_ + ".out" : stdout_to).c_str(), "w", stdout))
        std::_Exit(126);
      if (!std::freopen((base_ + ".err").c_str(), "w", stderr)) std::_Exit(126);
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
  }

  ~Child() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);  // a test that failed before wait()
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void interrupt() const { ::kill(pid_, SIGINT); }
  std::string out() const { return read_text_file(base_ + ".out"); }

  Outcome wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), out(),
                    read_text_file(base_ + ".err")};
    std::filesystem::remove(base_ + ".out");
    std::filesystem::remove(base_ + ".err");
    return outcome;
  }

 private:
  std::string base_;
  pid_t pid_ = -1;
};

Outcome redlite(const std::vector<std::string>& arguments) {
  return Child(arguments).wait();
}

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string temporary(const std::string& name) {
  return fmt::format("{}redlite_cli_{}_{}", ::testing::TempDir(), ::getpid(), name);
}

const std::string kDemo = REDLITE_DEMO_MODEL;

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// The statistics of a greedy generation of `n` tokens with the given switches.
nlohmann::json statistics(const std::vector<std::string>& switches, int n = 24) {
  const std::string path = temporary("stats.json");
  const Outcome run = redlite(with({"generate", kDemo, "--prompt", "Once upon a time there was", "-n",
                                    std::to_string(n), "--ignore-eos", "--stats-json", path},
                                   switches));
  EXPECT_EQ(run.status, 0) << run.err;
  auto json = nlohmann::json::parse(read_text_file(path));
  std::filesystem::remove(path);
  return json;
}

TEST(Usage, HelpNamesEveryCommand) {
  const Outcome help = redlite({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command :
       {"generate", "bench", "logits", "parity", "tokenize", "info", "synth", "convert", "trace", "simulate"})
    EXPECT_THAT(help.out, HasSubstr(command));
  EXPECT_EQ(redlite({"help"}).out, help.out);
  EXPECT_THAT(redlite({"help", "generate"}).out, HasSubstr("--cache-mib"));
}

TEST(Usage, WrongUsageExitsWithTwo) {
  EXPECT_EQ(redlite({}).status, 2);
  EXPECT_EQ(redlite({"frobnicate"}).status, 2);
  EXPECT_EQ(redlite({"generate", kDemo}).status, 2) << "no prompt";
  EXPECT_EQ(redlite({"generate", kDemo, "--prompt", "x", "--tokens", "1"}).status, 2) << "two prompts";
  const Outcome size = redlite({"generate", kDemo, "--prompt", "x", "--cache-mib", "lots"});
  EXPECT_EQ(size.status, 2);
  EXPECT_THAT(size.err, HasSubstr("'lots' is not a number of MiB, 'full' or 'auto'"));
}

TEST(Usage, NumbersAreChecked) {
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"generate", kDemo, "--prompt", "x", "--temp", "nan"},
           {"generate", kDemo, "--prompt", "x", "--threads", "-1"},
           {"plan", kDemo, "--threads", "1025"},
           {"perplexity", kDemo, kDemo, "--windows", "99999999999999999999"},
           {"simulate", kDemo, "--memory-gb-s", "nan"},
           {"simulate", kDemo, "--half-life", "inf"},
           {"simulate", kDemo, "--cache-mib", "0"},
           {"kernel-selftest", "--threads", "-1"},
           {"synth", "/nonexistent/x", "--preset", "tiny", "--threads", "1000000"}}) {
    const Outcome run = redlite(wrong);
    EXPECT_EQ(run.status, 2) << ::testing::PrintToString(wrong);
    EXPECT_THAT(run.err, HasSubstr("is not a number from ")) << ::testing::PrintToString(wrong);
  }
}

TEST(Usage, OutputThatCannotBeWrittenIsAnError) {
  for (const std::vector<std::string>& call :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"info", kDemo},
                                             {"models", "--json", kDemo},
                                             {"tokenize", kDemo, "--text", "x"},
                                             {"completions", "bash"},
                                             {"generate", kDemo, "-p", "x", "-n", "2"}}) {
    const Outcome run = Child(call, "/dev/full").wait();
    EXPECT_EQ(run.status, 1) << ::testing::PrintToString(call);
    EXPECT_THAT(run.err, HasSubstr("No space left on device")) << ::testing::PrintToString(call);
  }
}

TEST(Usage, BadInputGetsOneLineAndStatusOne) {
  const std::string empty = temporary("empty.gguf");
  write_file_atomically(empty, {});
  const std::vector<std::vector<std::string>> calls = {
      {"generate", "/nonexistent.gguf", "--prompt", "x"},
      {"generate", empty, "--prompt", "x"},
      {"generate", "/tmp", "--prompt", "x"},
      // A name may be anything: the line stays one, and does nothing to a terminal.
      {"generate", "/no\nthing\x1b[31m\xff", "--prompt", "x"},
      {"info", ""},
      {"models", kDemo, "/no\nthing\x1b[31m\xff"},
      {"models", empty},
      {"plan", "/no\nthing\x1b[31m\xff"},
      {"perplexity", kDemo, "/no\nthing\x1b[31m\xff"},
      {"perplexity", kDemo, ""},
      {"perplexity", kDemo, "/tmp"},
      {"perplexity", kDemo, empty},
      {"tokenize", kDemo, "--text-file", "/nonexistent"},
      {"tokenize", kDemo, "--text-file", ""},
      {"generate", kDemo, "--prompt", ""},
      {"generate", kDemo, "--prompt-file", "/nonexistent"},
      {"generate", kDemo, "--tokens", "1,2,99999"},
      {"generate", kDemo, "--tokens", "1,x"},
      {"generate", kDemo, "--tokens", "@/nonexistent"},
      {"generate", kDemo, "--prompt", "x", "-n", "100000"},
      {"generate", kDemo, "--prompt", "x", "--context", "10"},
      {"generate", kDemo, "--prompt", "x", "--kernels", "abacus"},
      {"generate", kDemo, "--prompt", "x", "-n", "4", "--stats-json", "/nonexistent/s.json"},
      {"logits", kDemo, "--tokens", "", "--out", "/tmp/x.npy"},
      {"logits", kDemo, "--tokens", "1", "--out", "/nonexistent/x.npy"},
      {"info", empty},
      {"trace", kDemo, "--prompt", "x", "-n", "1", "--out", "/nonexistent/t"},
      {"simulate", empty},
      {"simulate", kDemo},
      // Outputs are refused before the work, and never take the place of what is read.
      {"generate", kDemo, "--prompt", "x", "-n", "4", "--stats-json", kDemo},
      {"logits", kDemo, "--tokens", "1", "--out", kDemo},
      {"logits", kDemo, "--tokens", "1", "--out", "/dev/null"},
      {"convert", kDemo, "/dev/null", "--to", "f16"},
      {"trace", kDemo, "--prompt", "x", "-n", "1", "--out", kDemo},
      {"trace", kDemo, "--prompt", "x", "-n", "1", "--out", ""},
      {"trace", kDemo, "--prompt", "x", "-n", "1", "--out", empty, "--plot", empty},
      {"simulate", empty, "--plot", empty},
      {"synth", "", "--preset", "tiny"},
  };
  for (const auto& call : calls) {
    const Outcome run = redlite(call);
    EXPECT_EQ(run.status, 1) << ::testing::PrintToString(call) << run.err;
    EXPECT_THAT(run.err, StartsWith("redlite: ")) << ::testing::PrintToString(call);
    EXPECT_EQ(std::ranges::count_if(run.err, [](unsigned char c) { return c < 0x20 || c > 0x7e; }), 1)
        << run.err;
  }
  std::filesystem::remove(empty);
}

TEST(Cache, TooSmallIsRefusedWithTheLeastSizeThatWorks) {
  const std::vector<std::string> call = {"generate", kDemo, "--prompt", "Once", "-n", "4", "--cache-mib"};
  const Outcome refused = redlite(with(call, {"0"}));
  EXPECT_EQ(refused.status, 1);
  const size_t at = refused.err.find("--cache-mib ");
  ASSERT_NE(at, std::string::npos) << refused.err;
  const int least = std::stoi(refused.err.substr(at + 12));
  EXPECT_EQ(redlite(with(call, {std::to_string(least)})).status, 0);
}

TEST(Cache, NoSwitchChangesTheTokens) {
  const std::vector<std::string> call = {"generate", kDemo, "--prompt",   "Once upon a time",
                                         "-n",       "48",  "--temp",     "0.8",
                                         "--seed",   "5",   "--print-ids"};
  const Outcome full = redlite(with(call, {"--cache-mib", "full"}));
  ASSERT_EQ(full.status, 0) << full.err;
  EXPECT_EQ(nlohmann::json::parse(last_line(full.out)).size(), 48u);
  const std::vector<std::vector<std::string>> switches = {
      {"--cache-mib", "auto"},
      {"--cache-mib", "8"},
      {"--cache-mib", "4"},
      {"--cache-mib", "2"},
      {"--cache-mib", "4", "--prefetch", "off"},
      {"--cache-mib", "4", "--threads", "1"},
      {"--cache-mib", "4", "--threads", "3"},
  };
  for (const auto& s : switches)
    EXPECT_EQ(redlite(with(call, s)).out, full.out) << ::testing::PrintToString(s);
}

TEST(Cache, EverySwitchDoesWhatItSays) {
  const auto full = statistics({"--cache-mib", "full"});
  const auto half = statistics({"--cache-mib", "8"});
  const auto quarter = statistics({"--cache-mib", "4"});
  const auto plain = statistics({"--cache-mib", "4", "--prefetch", "off"});
  EXPECT_EQ(full["cache"]["misses"], 0);
  EXPECT_GT(half["cache"]["bytes_read"], 0);
  EXPECT_GT(quarter["cache"]["bytes_read"], half["cache"]["bytes_read"]);
  EXPECT_GT(quarter["cache"]["prefetched"], 0);
  EXPECT_EQ(plain["cache"]["prefetched"], 0);
  EXPECT_GT(plain["cache"]["misses"], quarter["cache"]["misses"]);
  // Every load is either a miss or a prefetch, and every prefetch ends up useful, late or wasted.
  const auto& c = quarter["cache"];
  EXPECT_EQ(c["prefetched"].get<int>(), c["prefetch_useful"].get<int>() + c["prefetch_late"].get<int>() +
                                            c["prefetch_wasted"].get<int>());
  EXPECT_EQ(statistics({"--threads", "1"})["threads"], 1);
  EXPECT_EQ(statistics({"--kernels", "scalar"})["kernels"], "scalar");
  const auto f32 = statistics({"--context", "4096", "--kv", "f32"});
  const auto f16 = statistics({"--context", "4096"});
  EXPECT_LT(f16["memory_budget_mib"]["state"], f32["memory_budget_mib"]["state"]);
  const auto small = statistics({"--batch", "1"});
  EXPECT_LT(small["memory_budget_mib"]["scratch"], f32["memory_budget_mib"]["scratch"]);
}

TEST(Memory, ThePeakStaysWithinThePrintedBudget) {
  const auto s = statistics({"--cache-mib", "4"}, 64);
  EXPECT_LE(s["peak_memory_mib"], s["memory_budget_mib"]["total"]);
}

TEST(Generate, InterruptEndsCleanlyWithStatistics) {
  Child child({"generate", kDemo, "--prompt", "Once upon a time", "-n", "4000", "--ignore-eos", "--backend",
               "reference", "--stats", "--print-ids"});
  // Wait for the first words, so that the handler is in place.
  for (int i = 0; i < 600 && child.out().size() < 20; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  child.interrupt();
  const Outcome run = child.wait();
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("ended by cancelled"), HasSubstr("tok/s")));
  EXPECT_GT(nlohmann::json::parse(last_line(run.out)).size(), 0u);
}

TEST(Generate, ChatAnswersAndPromptsFromFilesAreTheSame) {
  const std::string path = temporary("prompt.txt");
  const std::string text = "Tell me a story about a fox.";
  write_file_atomically(path, std::as_bytes(std::span(text)));
  const std::vector<std::string> rest = {"--chat", "-n", "16", "--print-ids"};
  const Outcome a = redlite(with({"generate", kDemo, "--prompt", text}, rest));
  const Outcome b = redlite(with({"generate", kDemo, "--prompt-file", path}, rest));
  EXPECT_EQ(a.status, 0) << a.err;
  EXPECT_EQ(a.out, b.out);
  const Outcome plain = redlite({"generate", kDemo, "--prompt", text, "-n", "16", "--print-ids"});
  EXPECT_NE(a.out, plain.out);
  std::filesystem::remove(path);
}

TEST(Trace, SimulatedMissesAreTheEngines) {
  const std::string trace = temporary("t.trace"), heat = temporary("heat.svg"),
                    curves = temporary("curves.svg");
  const Outcome traced = redlite({"trace", kDemo, "--prompt", "Once upon a time there was", "-n", "40",
                                  "--ignore-eos", "--out", trace, "--plot", heat, "--cache-mib", "8"});
  ASSERT_EQ(traced.status, 0) << traced.err;
  EXPECT_THAT(traced.out, HasSubstr("39 of them decoded; 4 of 32 experts in 8 layers"));
  EXPECT_THAT(read_text_file(heat), AllOf(StartsWith("<svg "), HasSubstr("class=\"h12\"")));

  const std::vector<std::string> speeds = {"--disk-gb-s", "2", "--memory-gb-s", "20"};
  const std::vector<std::string> check = {"simulate", trace,         "--model", kDemo,    "--check",
                                          "--json",   "--cache-mib", "1,4,12",  "--plot", curves};
  const Outcome checked = redlite(with(check, speeds));
  ASSERT_EQ(checked.status, 0) << checked.err;
  const auto rows = nlohmann::json::parse(checked.out);
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& row : rows) EXPECT_EQ(row["engine_misses"], row["whole_trace"]["misses"]);
  EXPECT_GT(rows[0]["misses_per_token"], rows[1]["misses_per_token"]);
  EXPECT_LT(rows[0]["decode_tok_s"], rows[2]["decode_tok_s"]);
  EXPECT_THAT(read_text_file(curves), StartsWith("<svg "));

  // The same, counted by a generation of its own.
  const auto counted = statistics({"--cache-mib", "4", "--prefetch", "off"}, 40);
  EXPECT_EQ(counted["cache"]["misses"], rows[1]["engine_misses"]);

  const Outcome table =
      redlite(with({"simulate", trace, "--cache-mib", "4", "--policy", "lru,segmented,frequency,clairvoyant",
                    "--slots", "by-size,uniform", "--predictor", "none,router,previous,perfect"},
                   speeds));
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 4 + 4 * 2 * 4);
  EXPECT_EQ(redlite({"simulate", trace, "--check"}).status, 2) << "no model";
  EXPECT_EQ(redlite({"simulate", trace, "--policy", "magic"}).status, 2);
  for (const std::string& path : {trace, heat, curves}) std::filesystem::remove(path);
}

TEST(Trace, IsCheckedWithTheAttentionCacheOfTheRun) {
  const std::string path = temporary("kv.trace");
  for (const std::vector<std::string>& kv : {std::vector<std::string>{}, {"--kv", "f32"}, {"--kv", "f16"}}) {
    const Outcome traced = redlite(with(
        {"trace", kDemo, "--prompt", "Once upon a time", "-n", "400", "--ignore-eos", "--out", path}, kv));
    ASSERT_EQ(traced.status, 0) << traced.err;
    const Outcome checked = redlite(with({"simulate", path, "--model", kDemo, "--check", "--cache-mib", "4",
                                          "--disk-gb-s", "2", "--memory-gb-s", "20"},
                                         kv));
    EXPECT_EQ(checked.status, 0) << ::testing::PrintToString(kv) << checked.err;
  }
  std::filesystem::remove(path);
}

/// Greedy ids after a short prompt, and what happened.
std::pair<std::string, nlohmann::json> greedy(const std::vector<std::string>& switches, const char* n = "6") {
  const std::string path = temporary("gpu.json");
  const Outcome run = redlite(with({"generate", kDemo, "--tokens", "1,50,300", "-n", n, "--temp", "0",
                                    "--ignore-eos", "--print-ids", "--stats-json", path},
                                   switches));
  EXPECT_EQ(run.status, 0) << run.err;
  auto json = nlohmann::json::parse(read_text_file(path));
  std::filesystem::remove(path);
  return {last_line(run.out), json};
}

// The GPU's kernels, on the emulator, give the CPU's greedy text from every residency; and each switch does
// what it says.
TEST(Gpu, TheEmulatorSaysWhatTheCpuSays) {
  const std::string expected = greedy({"--backend", "cpu"}).first;
  const auto [full, in_full] = greedy({"--backend", "emulator"});
  EXPECT_EQ(full, expected);
  EXPECT_EQ(in_full["residency"], "full");
  EXPECT_THAT(in_full["cache"]["description"].get<std::string>(), HasSubstr("chosen with"));
  const auto [device, in_device] =
      greedy({"--backend", "emulator", "--residency", "device", "--cache-mib", "4"});
  EXPECT_EQ(device, expected);
  EXPECT_GT(in_device["cache"]["misses"], 0);

  const std::vector<std::string> host = {"--backend",   "emulator", "--residency",      "host",
                                         "--cache-mib", "4",        "--host-cache-mib", "8"};
  const auto [sync, in_sync] = greedy(with(host, {"--decode", "sync"}));
  EXPECT_EQ(sync, expected);
  EXPECT_EQ(in_sync["cache"]["skipped_layers"], 0);
  EXPECT_GT(in_sync["cache"]["prefetched"], 0);
  EXPECT_GT(in_sync["cache"]["bytes_read"], 0);
  EXPECT_GT(in_sync["early_starts"], 0);
  ::setenv("RL_ENGINE_PREFETCH", "0", 1);
  ::setenv("RL_ENGINE_CONCURRENT", "0", 1);
  ::setenv("RL_ENGINE_PROFILE", "1", 1);
  const auto [routed, in_routed] = greedy(with(host, {"--decode", "routed", "--lookahead", "5"}));
  for (const char* name : {"RL_ENGINE_PREFETCH", "RL_ENGINE_CONCURRENT", "RL_ENGINE_PROFILE"})
    ::unsetenv(name);
  EXPECT_EQ(routed, expected);
  EXPECT_EQ(in_routed["cache"]["prefetched"], 0);
  EXPECT_EQ(in_routed["early_starts"], 0);
  EXPECT_GT(in_routed["profile"]["load_experts"]["launches"], 0);
  EXPECT_FALSE(in_sync.contains("profile"));
}

TEST(Gpu, WhatCannotBeIsRefused) {
  const std::vector<std::string> call = {"generate", kDemo, "--tokens",  "1",
                                         "-n",       "1",   "--backend", "emulator"};
  Outcome run = redlite(with(call, {"--residency", "host", "--host-cache-mib", "0"}));
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("the least that works is --host-cache-mib"));
  run = redlite(with(call, {"--residency", "device", "--cache-mib", "0"}));
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("the least for this model is --cache-mib"));
  run = redlite(with(call, {"--residency", "full", "--cache-mib", "1"}));
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(redlite(with(call, {"--lookahead", "0"})).status, 2);
  EXPECT_EQ(redlite(with(call, {"--decode", "maybe"})).status, 2);
}

}  // namespace
}  // namespace redlite
