// plan, doctor, perplexity, models and info --tensors as commands. Speeds are not tested here.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/temporary_folder.h"

namespace redlite {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

const std::string kModel = "'" REDLITE_DEMO_MODEL "'";

struct CommandOutcome {
  int status;
  std::string out, err;
};

CommandOutcome shell(const TemporaryFolder& home, const std::string& command) {
  const int status =
      std::system(fmt::format("export HOME='{0}'; {1} >'{0}/out' 2>'{0}/err'", home.path(), command).c_str());
  return {WEXITSTATUS(status), read_text_file(home / "out"), read_text_file(home / "err")};
}
CommandOutcome redlite_command(const TemporaryFolder& home, const std::string& arguments) {
  return shell(home, "'" REDLITE_BINARY "' " + arguments);
}
json json_of(const TemporaryFolder& home, const std::string& arguments) {
  const CommandOutcome run = redlite_command(home, arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  return json::parse(run.out);
}

/// The bundled model with some bytes changed or only its beginning.
void write_damaged(const std::string& path, const std::function<void(std::string&)>& damage) {
  std::string bytes = read_text_file(REDLITE_DEMO_MODEL);
  damage(bytes);
  write_file_atomically(path, std::as_bytes(std::span(bytes)));
}

TEST(PlanCommand, MemoryIsWhatARunIsGivenAndTheCommandWorks) {
  const TemporaryFolder home;
  const json plan = json_of(home, "plan --json --context 1024 --prompt 32 --threads 1 " + kModel);
  ASSERT_GE(plan["choices"].size(), 3u);
  EXPECT_EQ(plan["choices"][0]["cache_mib"], "full");
  EXPECT_EQ(plan["how"], "measured");
  EXPECT_GT(plan["memory_bandwidth_gb_s"].get<double>(), 0);
  EXPECT_GT(plan["disk_gb_s"].get<double>(), 0);
  EXPECT_EQ(plan["kv_bytes_per_position"], 1024);
  uint64_t last = UINT64_MAX;
  for (const json& choice : plan["choices"]) {
    const uint64_t total = choice["memory_mib"]["total"];
    EXPECT_LE(total, last) << "largest first";
    last = total;
    EXPECT_TRUE(choice["fits"]);
    EXPECT_GT(choice["decode_tok_s"].get<double>(), 0);
    EXPECT_GT(choice["prefill_tok_s"].get<double>(), 0);
    const std::string size =
        choice["cache_mib"].is_string() ? choice["cache_mib"].get<std::string>() : choice["cache_mib"].dump();
    redlite_command(home, fmt::format("generate {} --prompt x -n 1 --context 1024 --threads 1 --cache-mib {} "
                                      "--stats-json '{}'",
                                      kModel, size, home / "stats"));
    const json budget = json::parse(read_text_file(home / "stats"))["memory_budget_mib"];
    for (const char* part : {"cache", "dense", "state", "scratch", "program"}) {
      EXPECT_NEAR(choice["memory_mib"][part].get<double>(), budget[part].get<double>(), 1)
          << size << " " << part;
    }
  }
  const std::string command = plan["recommended"];
  EXPECT_THAT(command, AllOf(HasSubstr(" chat "), HasSubstr("--context 1024"), HasSubstr("--threads 1")));
  EXPECT_EQ(shell(home, "echo Hello. | " + command + " -n 2").status, 0);
}

TEST(PlanCommand, WordsForTheShellAreQuoted) {
  const TemporaryFolder home;
  std::filesystem::create_symlink(REDLITE_DEMO_MODEL, home / "it's a model.gguf");
  const json plan = json_of(
      home, "plan --json --context 64 --prompt 8 --threads 1 \"" + (home / "it's a model.gguf") + "\"");
  EXPECT_EQ(shell(home, "echo Hello. | " + plan["recommended"].get<std::string>() + " -n 2").status, 0);
}

// That the code of GPUs runs; its speeds mean nothing on the emulator.
TEST(PlanCommand, LooksAtAGpuToo) {
  const TemporaryFolder home;
  const std::string model = "'" + (home / "tiny.gguf") + "'";
  ASSERT_EQ(redlite_command(home, "synth --preset tiny " + model).status, 0);
  const json plan = json_of(home, "plan --json --backend emulator --context 64 --prompt 2 " + model);
  EXPECT_FALSE(plan.contains("choices")) << "the CPU was not asked about";
  const json& gpu = plan["gpu"];
  EXPECT_EQ(gpu["how"], "measured");
  EXPECT_EQ(gpu["choices"][0]["residency"], "full");
  for (const json& choice : gpu["choices"]) EXPECT_GT(choice["decode_tok_s"].get<double>(), 0);
  EXPECT_THAT(plan["recommended"].get<std::string>(), HasSubstr("--backend emulator --residency "));
}

TEST(PlanCommand, WhatDoesNotFitIsSaid) {
  const TemporaryFolder home;
  EXPECT_THAT(redlite_command(home, "plan --context 5000 " + kModel).err,
              HasSubstr("--context 5000: the model's is 4096"));
  EXPECT_THAT(redlite_command(home, "plan --context 64 --prompt 65 " + kModel).err,
              HasSubstr("does not fit"));
  EXPECT_EQ(redlite_command(home, "plan /nonexistent").status, 1);
  EXPECT_EQ(redlite_command(home, "plan").status, 2);
}

TEST(DoctorCommand, SaysWhatIsThereAndWhatIsWrong) {
  const TemporaryFolder home;
  const json findings = json_of(home, "doctor --json " + kModel);
  std::set<std::string> seen;
  for (const json& finding : findings) {
    seen.insert(finding["what"]);
    EXPECT_THAT((std::vector<std::string>{"ok", "could be better"}), ::testing::Contains(finding["health"]));
    EXPECT_TRUE(finding["health"] == "ok" || finding["advice"] != "") << finding;
  }
  EXPECT_THAT(seen, ::testing::IsSupersetOf({"processor", "cores", "memory", "memory limit", "memory speed",
                                             "huge pages", "io_uring", "disk", "GPU", "model"}));
  std::filesystem::create_directories(home / ".redlite/models");
  write_damaged(home / ".redlite/models/half.gguf",
                [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  const CommandOutcome run = redlite_command(home, "doctor");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, AllOf(HasSubstr("half.gguf"), HasSubstr("problem")));
  EXPECT_THAT(run.err, HasSubstr("1 problem found")) << "and the disk is read elsewhere";

  const CommandOutcome homeless = shell(home, "unset HOME; '" REDLITE_BINARY "' doctor");
  EXPECT_EQ(homeless.status, 0) << homeless.err;
  EXPECT_THAT(homeless.out, HasSubstr("none in ~/.redlite/models (but HOME is not set)"));
}

TEST(ModelsCommand, ListsAndVerifies) {
  const TemporaryFolder home;
  EXPECT_THAT(redlite_command(home, "models").out, HasSubstr("no models in"));
  const std::string folder = home / ".redlite/models";
  std::filesystem::create_directories(folder + "/tales");
  std::filesystem::create_symlink(REDLITE_DEMO_MODEL, folder + "/tales/x.gguf");
  json list = json_of(home, "models --json");
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["name"], "Red Lite Tales 32M");
  EXPECT_EQ(list[0]["architecture"], "qwen3next");
  EXPECT_EQ(list[0]["bytes"], std::filesystem::file_size(REDLITE_DEMO_MODEL));
  EXPECT_EQ(redlite_command(home, "models verify").status, 0);

  write_damaged(folder + "/cut.gguf", [](std::string& bytes) { bytes.resize(bytes.size() - 1); });
  // The first scale of the Q4_K experts of layer 1 becomes infinite.
  const json info = json_of(home, "info --json --tensors " + kModel);
  uint64_t scale = 0, zeros = 0, n_zeros = 0;
  for (const json& tensor : info["tensors"]) {
    if (tensor["name"] == "blk.1.ffn_up_exps.weight") scale = tensor["offset"];
    if (tensor["name"] == "blk.2.ffn_up_exps.weight") zeros = tensor["offset"], n_zeros = tensor["bytes"];
  }
  ASSERT_GT(scale, 0u);
  write_damaged(folder + "/scale.gguf",
                [&](std::string& bytes) { bytes[scale] = 0, bytes[scale + 1] = 0x7c; });
  write_damaged(folder + "/zero.gguf",
                [&](std::string& bytes) { std::fill_n(bytes.begin() + zeros, n_zeros, '\0'); });
  list = json_of(home, "models --json");
  ASSERT_EQ(list.size(), 4u);
  const CommandOutcome run = redlite_command(home, "models verify");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("x.gguf: all"), HasSubstr("cut.gguf"),
                    HasSubstr(fmt::format("'blk.1.ffn_up_exps.weight': the Q4_K block at offset {}", scale)),
                    HasSubstr("'blk.2.ffn_up_exps.weight': all zeros")));
  EXPECT_THAT(run.err, HasSubstr("3 of 4 models cannot be used"));
  EXPECT_EQ(redlite_command(home, "models verify /nonexistent.gguf").status, 1);
}

TEST(InfoCommand, ListsTensorsOnDemand) {
  const TemporaryFolder home;
  const json info = json_of(home, "info --json --tensors " + kModel);
  uint64_t bytes = 0;
  for (const json& tensor : info["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  uint64_t by_role = 0;
  for (const json& group : info["weights"]) by_role += group["bytes"].get<uint64_t>();
  EXPECT_EQ(bytes, by_role);
  EXPECT_THAT(redlite_command(home, "info --tensors " + kModel).out,
              HasSubstr("token_embd.weight                      Q6_K      256 x 4096"));
  EXPECT_FALSE(json_of(home, "info --json " + kModel).contains("tensors"));
}

TEST(PerplexityCommand, ReadsWholeWindowsAndRefusesShortTexts) {
  const TemporaryFolder home;
  const std::string text =
      "There was once a king who had three sons. The eldest was proud, the second was idle, and the youngest "
      "was "
      "good to all the beasts of the wood, so that the fox and the raven came when he called them.\n";
  write_file_atomically(home / "text", std::as_bytes(std::span(text)));
  const std::string command = "perplexity " + kModel + " '" + (home / "text") + "' --context 16 ";
  const json result = json_of(home, command + "--json");
  EXPECT_GE(result["windows"], 2);
  EXPECT_EQ(result["tokens_scored"].get<int>(), result["windows"].get<int>() * 7);
  EXPECT_GT(result["perplexity"].get<double>(), 1);
  EXPECT_LT(result["perplexity"].get<double>(), 200);
  // Its own arithmetic does not depend on the backend's precision.
  const json exact = json_of(home, command + "--json --backend reference");
  EXPECT_NEAR(result["perplexity"].get<double>(), exact["perplexity"].get<double>(),
              0.05 * exact["perplexity"].get<double>());
  EXPECT_EQ(json_of(home, command + "--json --windows 1")["windows"], 1);
  EXPECT_THAT(redlite_command(home, command).out, HasSubstr("PPL = "));
  const CommandOutcome run = redlite_command(home, "perplexity " + kModel + " '" + (home / "text") + "'");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("at least two windows of 512 are wanted"));
}

}  // namespace
}  // namespace redlite
