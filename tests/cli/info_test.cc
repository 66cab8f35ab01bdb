// redlite info: its figures are those of the file and of the libraries that use them.

#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "experts/cache.h"
#include "model/model.h"

namespace redlite {
namespace {

using ::testing::HasSubstr;

std::string output_of(const std::string& arguments) {
  std::FILE* pipe = ::popen((std::string(REDLITE_BINARY) + " " + arguments).c_str(), "r");
  std::string out;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
  EXPECT_EQ(::pclose(pipe), 0) << arguments;
  return out;
}

/// The rows of a table whose first word or words are `role`, summed.
uint64_t sum(const nlohmann::json& weights, std::string_view role, const char* what) {
  uint64_t total = 0;
  for (const auto& group : weights) {
    if (role.empty() || group["role"].get<std::string>().starts_with(role))
      total += group[what].get<uint64_t>();
  }
  return total;
}

TEST(Info, JsonAgreesWithTheModel) {
  const auto json = nlohmann::json::parse(output_of("info --json '" REDLITE_DEMO_MODEL "'"));
  const model::Model model(REDLITE_DEMO_MODEL);
  const model::Config& c = model.config();
  EXPECT_EQ(json["architecture"], "qwen3next");
  EXPECT_EQ(json["layers"], c.n_layers);
  EXPECT_EQ(json["attention_layers"].get<int>() + json["delta_net_layers"].get<int>(), c.n_layers);
  EXPECT_EQ(json["experts"]["count"], c.n_experts);
  EXPECT_EQ(json["file_bytes"], model.file().shards()[0].file().size());
  EXPECT_EQ(json["mtp"], false);
  EXPECT_EQ(json["tokenizer"]["pre"], "qwen2");
  EXPECT_EQ(json["tokenizer"]["chat_template"], true);

  // Every byte of every tensor is in the table, once.
  uint64_t tensor_bytes = 0;
  for (const gguf::TensorInfo& tensor : model.file().tensors()) tensor_bytes += tensor.bytes;
  EXPECT_EQ(sum(json["weights"], "", "bytes"), tensor_bytes);
  EXPECT_EQ(sum(json["weights"], "experts", "bytes"), model.expert_bytes());
  EXPECT_EQ(sum(json["weights"], "", "parameters"), json["parameters"].get<uint64_t>());
  EXPECT_EQ(sum(json["weights"], "token embedding", "parameters"),
            static_cast<uint64_t>(c.n_vocab) * static_cast<uint64_t>(c.n_embd));

  const auto& memory = json["memory"];
  EXPECT_EQ(memory["dense_bytes"], model.dense_bytes());
  EXPECT_EQ(memory["full_cache_bytes"], experts::ExpertCache::full_bytes(model));
  EXPECT_EQ(memory["least_cache_bytes"], experts::ExpertCache::minimum_bytes(model));
  // 2 attention layers of 2 K/V heads of 64; 6 DeltaNet layers of 8 states 64 x 64 and 3 inputs of 1024
  // channels.
  EXPECT_EQ(memory["kv_bytes_per_position"]["f32"], 2 * 2 * 2 * 64 * 4);
  EXPECT_EQ(memory["kv_bytes_per_position"]["f16"], 2 * 2 * 2 * 64 * 2);
  EXPECT_EQ(memory["delta_net_state_bytes"], 6 * (8 * 64 * 64 + 3 * 1024) * 4);
  uint64_t expert_bytes = 0;
  for (const auto& size : memory["size_classes"]) {
    expert_bytes += size["expert_bytes"].get<uint64_t>() * size["layers"].get<uint64_t>();
  }
  EXPECT_EQ(expert_bytes * static_cast<uint64_t>(c.n_experts), model.expert_bytes());
}

TEST(Info, TableNamesTypesByRoleAndTheMemoryNeeded) {
  const std::string text = output_of("info '" REDLITE_DEMO_MODEL "'");
  EXPECT_THAT(text, HasSubstr("qwen3next"));
  EXPECT_THAT(text, HasSubstr("\n  experts down     "));
  EXPECT_THAT(text, HasSubstr("\n  token embedding  Q6_K "));
  EXPECT_THAT(text, HasSubstr("\n  K/V per position  2048 B (f32), 1024 B (f16)\n"));
  EXPECT_THAT(text, HasSubstr("\n  least cache       --cache-mib 1\n"));
}

TEST(Info, TellsHowASyntheticModelWasMade) {
  const std::string path = ::testing::TempDir() + "info_test_synthetic.gguf";
  std::filesystem::remove(path);
  output_of("synth '" + path + "' --preset tiny --seed 7 --types experts=IQ3_S");
  const auto json = nlohmann::json::parse(output_of("info --json '" + path + "'"));
  EXPECT_EQ(json["synthetic"]["preset"], "tiny");
  EXPECT_EQ(json["synthetic"]["seed"], 7);
  EXPECT_EQ(json["synthetic"]["types"], "experts=IQ3_S");
  EXPECT_GT(json["synthetic"]["token_rate"], 0.0);
  const std::string text = output_of("info '" + path + "'");
  EXPECT_THAT(text, HasSubstr("Synthetic (docs/synthetic-models.md)"));
  EXPECT_THAT(text, HasSubstr("preset            tiny"));
  EXPECT_THAT(text, HasSubstr("token_rate        0.19\n"));
  EXPECT_FALSE(
      nlohmann::json::parse(output_of("info --json '" REDLITE_DEMO_MODEL "'")).contains("synthetic"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace redlite
