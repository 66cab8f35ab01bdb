// redlite bench as a user meets it, on the demo model.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace redlite {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int status = -1;
  std::string text;  ///< what it printed, errors included
};

/// Runs `redlite bench` with arguments as a shell reads them.
Outcome bench(const std::string& arguments) {
  std::FILE* pipe = ::popen(fmt::format("{} bench {} 2>&1", REDLITE_BINARY, arguments).c_str(), "r");
  Outcome outcome;
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) outcome.text.append(block, n);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
  return outcome;
}

std::vector<nlohmann::json> lines(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  std::vector<nlohmann::json> objects;
  std::istringstream in(outcome.text);
  for (std::string line; std::getline(in, line);) objects.push_back(nlohmann::json::parse(line));
  return objects;
}

const std::string kDemo = REDLITE_DEMO_MODEL;

TEST(Bench, OneObjectForEachTestDepthAndCacheSize) {
  const std::vector<nlohmann::json> rows =
      lines(bench(kDemo + " --prefill 32 --decode 4 --depth 0,40 --cache-mib full,4 --repetitions 2 --json"));
  ASSERT_EQ(rows.size(), 8u);
  std::vector<std::string> seen;
  for (const nlohmann::json& row : rows) {
    const std::string test = row["test"];
    seen.push_back(fmt::format("{} {} {}", row["cache_mib"].dump(), row["depth"].get<int>(), test));
    EXPECT_EQ(row["samples"].size(), 2u);
    const double median = row[test + "_tok_s"];
    EXPECT_GE(median, row["min"]);
    EXPECT_LE(median, row["max"]);
    EXPECT_GT(row["floor_fraction"], 0);
    EXPECT_GT(row["peak_memory_mib"], 0);
    EXPECT_GT(row["memory_bandwidth_gb_s"], 0);
    EXPECT_EQ(row["file"], kDemo);
    for (const char* key : {"model", "types", "threads", "kernels", "io", "version", "commit", "machine"})
      EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_THAT(seen, ::testing::ElementsAre("\"full\" 0 prefill", "\"full\" 0 decode", "\"full\" 40 prefill",
                                           "\"full\" 40 decode", "4 0 prefill", "4 0 decode", "4 40 prefill",
                                           "4 40 decode"));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i]["logits"], rows[i + 4]["logits"]) << "the cache changes no bit";
    EXPECT_EQ(rows[i]["hit_rate"], 1);
    EXPECT_EQ(rows[i]["bytes_read_per_token"], 0);
    EXPECT_FALSE(rows[i].contains("disk_fraction"));
    for (const nlohmann::json& row : {rows[i], rows[i + 4]})
      EXPECT_EQ(row.contains("replay_fraction"), row["test"] == "decode");
    EXPECT_LT(rows[i + 4]["hit_rate"], 1) << "4 MiB of the 16 of its experts";
    EXPECT_GT(rows[i + 4]["bytes_read_per_token"], 0);
    EXPECT_GT(rows[i + 4]["disk_fraction"], 0);
  }
  EXPECT_NE(rows[0]["logits"], rows[2]["logits"]);
}

TEST(Bench, ATableAgainstAnotherProgram) {
  const std::string fake = R"(echo '\''[{"n_prompt": 0, "n_gen": 4, "n_depth": 0, "avg_ts": 0.25}]'\'')";
  const Outcome run = bench(kDemo + " --prefill 0 --decode 4 --repetitions 2 --against '" + fake + "'");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, HasSubstr("qwen3next"));
  EXPECT_THAT(run.text, HasSubstr("ratio"));
  EXPECT_THAT(run.text, HasSubstr(" 0.25 "));
  EXPECT_THAT(run.text, HasSubstr("x\n"));
}

TEST(Bench, WrongUsage) {
  for (const char* arguments : {"--prefill 0 --decode 0", "--prefill x", "--depth -1",
                                "--cache-mib full,lots", "--repetitions 0", "--context 9"}) {
    EXPECT_EQ(bench(kDemo + " " + arguments).status, 2) << arguments;
  }
}

TEST(Bench, OneLineForWhatCannotBeMeasured) {
  for (const std::string& call :
       {kDemo + " --depth 1000000", std::string("/nonexistent.gguf"), kDemo + " --against 'exit 4'",
        kDemo + " --decode 4 --against 'echo []'", kDemo + " --prefill 8 --decode 0 --cache-mib 0"}) {
    const Outcome run = bench(call);
    EXPECT_EQ(run.status, 1) << call << run.text;
    EXPECT_THAT(run.text, StartsWith("redlite: ")) << call;
    EXPECT_EQ(std::count(run.text.begin(), run.text.end(), '\n'), 1) << run.text;
  }
}

}  // namespace
}  // namespace redlite
