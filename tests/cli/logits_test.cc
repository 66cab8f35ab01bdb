// redlite logits and redlite parity: the file is the runner's logits, the exit status is the verdict.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/model.h"
#include "model/temporary_model.h"
#include "reference/reference_runner.h"

namespace redlite {
namespace {

using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::HasSubstr;

struct Outcome {
  int status;
  std::string out;  ///< both streams
};

Outcome run(const std::string& arguments) {
  std::FILE* pipe = ::popen((std::string(REDLITE_BINARY) + " " + arguments + " 2>&1").c_str(), "r");
  std::string out;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
}

class Logits : public ::testing::Test {
 protected:
  ~Logits() override { std::filesystem::remove(array_); }

  /// The values of the array just written, whose shape is checked.
  std::vector<float> read_array(size_t rows) {
    const std::string file = read_text_file(array_);
    std::filesystem::remove(array_);
    EXPECT_EQ(file.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const size_t header =
        10 + static_cast<unsigned char>(file[8]) + 256 * static_cast<unsigned char>(file[9]);
    EXPECT_EQ(header % 64, 0u);
    EXPECT_EQ(file[header - 1], '\n');
    EXPECT_THAT(
        file.substr(10, header - 10),
        HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 48), }"));
    std::vector<float> values((file.size() - header) / sizeof(float));
    std::memcpy(values.data(), file.data() + header, values.size() * sizeof(float));
    return values;
  }

  const TemporaryModel file_{TinyModel("qwen3next")};
  const std::string array_ = file_.path() + ".npy";
  const std::string model_ = "'" + file_.path() + "' ";
};

TEST_F(Logits, AreTheRunners) {
  const model::Model model(file_.path());
  reference::ReferenceRunner runner(model, 5);
  const std::vector<model::Token> tokens = {7, 1, 40, 3, 3};
  const std::span<const float> logits = runner.forward(tokens, model::LogitsFor::All);
  const std::vector<float> expected(logits.begin(), logits.end());

  const std::string command = "logits " + model_ + "--out '" + array_ + "' --tokens ";
  Outcome outcome = run(command + "7,1,40,3,3 --backend reference");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(read_array(5), expected);
  EXPECT_EQ(run(command + "7,1,40,3,3 --backend reference --batch 2").status, 0);
  EXPECT_EQ(read_array(5), expected);

  outcome = run(command + "7,1,40,3,3 --json");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(nlohmann::json::parse(outcome.out), (nlohmann::json{{"file", array_}, {"shape", {5, 48}}}));
  EXPECT_THAT(read_array(5), ::testing::Pointwise(::testing::FloatNear(1e-3f), expected));
}

TEST_F(Logits, AFailureLeavesNothingBehind) {
  const std::string command = "logits " + model_ + "--backend reference --out '" + array_ + "' ";
  for (const char* wrong : {"--tokens 1,48", "--tokens ''", "--tokens 1,2,3 --context 2"}) {
    const Outcome outcome = run(command + wrong);
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_THAT(outcome.out, ::testing::StartsWith("redlite: "));
  }
  // Something is in the way of the file, which shows when all is computed.
  std::filesystem::create_directory(array_);
  EXPECT_EQ(run(command + "--tokens 1").status, 1);
  std::filesystem::remove(array_);
  const std::string name = std::filesystem::path(array_).filename();
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(array_).parent_path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(name)) << entry.path();
}

TEST_F(Logits, ParityPrintsATableAndPasses) {
  const Outcome outcome = run("parity " + model_ + "--tokens 7,1,40,3,3");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  for (const char* part :
       {"layer stage", "3 mixer_output", "selections: 0 differ", "best token after 5 of 5"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("FAILED")));
}

TEST_F(Logits, ParityAsJson) {
  const Outcome outcome = run("parity " + model_ + "--tokens 7,1,40 --a reference --b reference --json");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["passed"], true);
  EXPECT_EQ(json["n_tokens"], 3);
  EXPECT_EQ(json["stages"].size(), 3u + 8 * 4);
  EXPECT_EQ(json["kl"]["max"], 0);
  for (const auto& stage : json["stages"]) EXPECT_EQ(stage["drift"]["absolute"], 0);
}

TEST_F(Logits, ParityOfNothingFails) {
  EXPECT_EQ(run("parity " + model_ + "--tokens ''").status, 1);
  EXPECT_EQ(run("parity " + model_ + "--tokens 1 --b gpu").status, 2);
}

}  // namespace
}  // namespace redlite
