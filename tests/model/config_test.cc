#include "model/config.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <ostream>

#include "base/error.h"
#include "gguf/writer.h"
#include "model/temporary_model.h"

namespace redlite::model {
namespace {

using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Config config_of(const TinyModel& model) {
  const TemporaryModel file(model);
  return read_config(gguf::File(file.path()));
}

std::string kinds(const Config& config) {
  std::string out;
  for (const LayerKind kind : config.layers) out += kind == LayerKind::Attention ? 'A' : 'D';
  return out;
}

TEST(Config, ReadsQwen3Next) {
  const Config c = config_of(TinyModel("qwen3next"));
  EXPECT_EQ(c.architecture, "qwen3next");
  EXPECT_EQ(c.n_layers, 4);
  EXPECT_EQ(c.n_embd, 32);
  EXPECT_EQ(c.n_vocab, 48);
  EXPECT_EQ(c.context_length, 512);
  EXPECT_EQ(c.rms_eps, 1e-6f);
  EXPECT_EQ(kinds(c), "DDDA");
  EXPECT_EQ(c.n_heads, 4);
  EXPECT_EQ(c.n_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope_dims, 8);
  EXPECT_EQ(c.rope_base, 10000.0f);
  EXPECT_TRUE(c.gated_attention);
  EXPECT_EQ(c.conv_kernel, 4);
  EXPECT_EQ(c.n_k_heads, 2);
  EXPECT_EQ(c.n_v_heads, 4);
  EXPECT_EQ(c.state_dim, 8);
  EXPECT_EQ(c.pairing, HeadPairing::Grouped);
  EXPECT_EQ(c.k_head_of(1), 0);
  EXPECT_EQ(c.k_head_of(2), 1);
  EXPECT_EQ(c.n_experts, 8);
  EXPECT_EQ(c.n_experts_used, 3);
  EXPECT_EQ(c.expert_ff, 16);
  EXPECT_EQ(c.shared_ff, 24);
  EXPECT_EQ(c.expert_weights_scale, 1.0f);
}

TEST(Config, ReadsQwen35Moe) {
  const Config c = config_of(TinyModel("qwen35moe"));
  EXPECT_EQ(kinds(c), "DDDA");
  EXPECT_TRUE(c.gated_attention);
  EXPECT_EQ(c.pairing, HeadPairing::Interleaved);
  EXPECT_EQ(c.k_head_of(1), 1);
  EXPECT_EQ(c.k_head_of(2), 0);
}

TEST(Config, ReadsQwen3Moe) {
  const Config c = config_of(TinyModel("qwen3moe"));
  EXPECT_EQ(kinds(c), "AAAA");
  EXPECT_FALSE(c.gated_attention);
  EXPECT_EQ(c.shared_ff, 0);
  EXPECT_EQ(c.n_v_heads, 0);
}

TEST(Config, LayerKindsFollowTheIntervalOrTheArray) {
  EXPECT_EQ(kinds(config_of(TinyModel("qwen3next").set("full_attention_interval", uint32_t{2}))), "DADA");
  EXPECT_EQ(kinds(config_of(TinyModel("qwen3next").set("full_attention_interval", uint32_t{1}))), "AAAA");
  EXPECT_EQ(kinds(config_of(TinyModel("qwen3next").set("full_attention_interval", uint32_t{9}))), "DDDD");
  const auto flags = [](std::vector<bool> values) { return gguf::make_array(std::move(values)); };
  EXPECT_EQ(kinds(config_of(TinyModel("qwen3next")
                                .set("full_attention_interval", uint32_t{2})
                                .set("attention.recurrent_layers", flags({false, true, true, false})))),
            "ADDA");
  EXPECT_EQ(kinds(config_of(
                TinyModel("qwen3next")
                    .set("attention.recurrent_layers", gguf::make_array(std::vector<uint32_t>{1, 0, 1, 0})))),
            "DADA");
  // With an MTP block the array counts it too, and the trunk is one shorter than block_count.
  EXPECT_EQ(
      kinds(config_of(TinyModel("qwen3next")
                          .add_mtp_block()
                          .set("attention.recurrent_layers", flags({true, false, false, true, false})))),
      "DAAD");
}

TEST(Config, DefaultsWhenKeysAreAbsent) {
  const Config c = config_of(TinyModel("qwen3next")
                                 .unset("attention.head_count_kv")
                                 .unset("attention.key_length")
                                 .unset("attention.value_length")
                                 .unset("rope.dimension_count")
                                 .unset("rope.freq_base")
                                 .unset("expert_feed_forward_length")
                                 .unset("expert_shared_feed_forward_length")
                                 .set("feed_forward_length", uint32_t{60}));
  EXPECT_EQ(c.n_kv_heads, 4);
  EXPECT_EQ(c.head_dim, 8);  // n_embd / n_heads
  EXPECT_EQ(c.rope_dims, 8);
  EXPECT_EQ(c.rope_base, 10000.0f);
  EXPECT_EQ(c.expert_ff, 20);  // feed_forward_length / n_experts_used
  EXPECT_EQ(c.shared_ff, 60);
}

TEST(Config, TakesPerBlockArraysWhoseValuesAgree) {
  const Config c =
      config_of(TinyModel("qwen3moe")
                    .set("attention.head_count_kv", gguf::make_array(std::vector<uint32_t>{2, 2, 2, 2})));
  EXPECT_EQ(c.n_kv_heads, 2);
  EXPECT_THAT(
      [] {
        config_of(TinyModel("qwen3moe")
                      .set("attention.head_count_kv", gguf::make_array(std::vector<uint32_t>{2, 2, 4, 2})));
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("attention.head_count_kv"), HasSubstr("differs"))));
}

TEST(Config, ExpertWeightsScale) {
  EXPECT_EQ(config_of(TinyModel("qwen3next").set("expert_weights_scale", 0.0f)).expert_weights_scale, 1.0f);
  EXPECT_EQ(config_of(TinyModel("qwen3next").set("expert_weights_scale", 2.5f)).expert_weights_scale, 2.5f);
}

TEST(Config, IdentityRopeScalingIsAccepted) {
  EXPECT_NO_THROW(config_of(TinyModel("qwen3next").set("rope.scaling.type", std::string("none"))));
  EXPECT_NO_THROW(config_of(TinyModel("qwen3next")
                                .set("rope.scaling.type", std::string("linear"))
                                .set("rope.scaling.factor", 1.0f)));
}

struct BadKey {
  const char* name;
  const char* architecture;
  const char* key;
  gguf::Value value;
  const char* message;  ///< a part of the error, beside file and key
};

void PrintTo(const BadKey& bad, std::ostream* out) {
  *out << bad.name;
}

class BadConfig : public ::testing::TestWithParam<BadKey> {};

TEST_P(BadConfig, IsRefusedNamingTheKey) {
  const BadKey& bad = GetParam();
  TinyModel model(bad.architecture);
  model.set(bad.key, bad.value);
  const TemporaryModel file(model);
  EXPECT_THAT([&] { read_config(gguf::File(file.path())); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr(file.path()), HasSubstr(model.key(bad.key)), HasSubstr(bad.message))));
}

constexpr uint32_t kHuge = 0xffffffffu;

INSTANTIATE_TEST_SUITE_P(
    All, BadConfig,
    ::testing::Values(
        BadKey{"no_layers", "qwen3next", "block_count", uint32_t{0}, "outside"},
        BadKey{"too_many_layers", "qwen3next", "block_count", uint32_t{5000}, "more than"},
        BadKey{"negative_layers", "qwen3next", "block_count", int32_t{-4}, "negative"},
        BadKey{"layers_as_text", "qwen3next", "block_count", std::string("4"), "integer"},
        BadKey{"only_mtp_blocks", "qwen3next", "nextn_predict_layers", uint32_t{4}, "below block_count"},
        BadKey{"huge_mtp", "qwen3next", "nextn_predict_layers", kHuge, "below block_count"},
        BadKey{"huge_embedding", "qwen3next", "embedding_length", kHuge, "outside"},
        BadKey{"huge_context", "qwen3next", "context_length", uint64_t{1} << 40, "out of range"},
        BadKey{"no_context", "qwen3next", "context_length", uint32_t{0}, "out of range"},
        BadKey{"negative_eps", "qwen3next", "attention.layer_norm_rms_epsilon", -1.0f, "out of range"},
        BadKey{"nan_eps", "qwen3next", "attention.layer_norm_rms_epsilon",
               std::numeric_limits<float>::quiet_NaN(), "finite"},
        BadKey{"no_heads", "qwen3next", "attention.head_count", uint32_t{0}, "outside"},
        BadKey{"no_heads_moe", "qwen3moe", "attention.head_count", uint32_t{0}, "outside"},
        BadKey{"kv_heads", "qwen3next", "attention.head_count_kv", uint32_t{3}, "does not divide"},
        BadKey{"more_kv_heads", "qwen3next", "attention.head_count_kv", uint32_t{8}, "does not divide"},
        BadKey{"value_length", "qwen3next", "attention.value_length", uint32_t{32}, "differs"},
        BadKey{"odd_rope", "qwen3next", "rope.dimension_count", uint32_t{7}, "even"},
        BadKey{"rope_beyond_head", "qwen3next", "rope.dimension_count", uint32_t{18}, "at most"},
        BadKey{"rope_base_zero", "qwen3next", "rope.freq_base", 0.0f, "positive"},
        BadKey{"rope_base_infinite", "qwen3next", "rope.freq_base", std::numeric_limits<float>::infinity(),
               "finite"},
        BadKey{"rope_base_too_large", "qwen3next", "rope.freq_base", 1e300, "positive"},
        BadKey{"yarn", "qwen3moe", "rope.scaling.type", std::string("yarn"), "'yarn' is not supported"},
        BadKey{"linear_factor", "qwen3moe", "rope.scaling.factor", 4.0f, "4 is not supported"},
        BadKey{"old_linear_factor", "qwen3moe", "rope.scale_linear", 2.0f, "2 is not supported"},
        BadKey{"attention_factor", "qwen3moe", "rope.scaling.attn_factor", 1.5f, "1.5 is not supported"},
        BadKey{"not_causal", "qwen3moe", "attention.causal", false, "not supported"},
        BadKey{"no_kernel", "qwen3next", "ssm.conv_kernel", uint32_t{0}, "outside"},
        BadKey{"k_heads", "qwen3next", "ssm.group_count", uint32_t{3}, "do not divide"},
        BadKey{"more_k_heads", "qwen3next", "ssm.group_count", uint32_t{8}, "do not divide"},
        BadKey{"inner_size", "qwen3next", "ssm.inner_size", uint32_t{64}, "time_step_rank 4 x state_size 8"},
        BadKey{"interval_zero", "qwen3next", "full_attention_interval", uint32_t{0}, "outside"},
        BadKey{"recurrent_too_few", "qwen3next", "attention.recurrent_layers",
               gguf::make_array(std::vector<bool>{true, false}), "2 values for 4 blocks"},
        BadKey{"recurrent_as_text", "qwen3next", "attention.recurrent_layers",
               gguf::make_array(std::vector<std::string>{"yes"}), "integers"},
        BadKey{"no_experts", "qwen3next", "expert_count", uint32_t{0}, "outside"},
        BadKey{"used_experts", "qwen3next", "expert_used_count", uint32_t{9}, "more than the 8"},
        BadKey{"groups", "qwen3next", "expert_group_count", uint32_t{2}, "not supported"},
        BadKey{"sections_text", "qwen35moe", "rope.dimension_sections", std::string("x"), "integer"},
        BadKey{"sections_few", "qwen35moe", "rope.dimension_sections",
               gguf::make_array(std::vector<int32_t>{4, 0}), "4 numbers"},
        BadKey{"sections_zero", "qwen35moe", "rope.dimension_sections",
               gguf::make_array(std::vector<int32_t>{0, 0, 0, 0}), "zero"},
        BadKey{"sections_huge", "qwen35moe", "rope.dimension_sections",
               gguf::make_array(std::vector<int32_t>{1 << 30, 1 << 30, 1 << 30, 1 << 30}), "too large"},
        BadKey{"sections_fourth", "qwen35moe", "rope.dimension_sections",
               gguf::make_array(std::vector<int32_t>{1, 1, 1, 1}), "pair 3"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(Config, MissingKeysAreNamed) {
  for (const char* key : {"block_count", "context_length", "embedding_length", "attention.head_count",
                          "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count",
                          "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
                          "ssm.inner_size", "rope.dimension_sections"}) {
    TinyModel model("qwen35moe");
    model.unset(key);
    EXPECT_THAT([&] { config_of(model); },
                ThrowsMessage<Error>(AllOf(HasSubstr(model.key(key)), HasSubstr("is missing"))))
        << key;
  }
}

// Products of sizes that each look reasonable.
TEST(Config, WidthsBeyondAnIntAreRefused) {
  EXPECT_THAT(
      [] {
        config_of(TinyModel("qwen3moe")
                      .set("attention.head_count", uint32_t{1 << 20})
                      .set("attention.key_length", uint32_t{1 << 20})
                      .set("attention.value_length", uint32_t{1 << 20}));
      },
      ThrowsMessage<Error>(HasSubstr("the width of attention")));
  EXPECT_THAT(
      [] {
        config_of(TinyModel("qwen3next")
                      .set("ssm.group_count", uint32_t{1 << 20})
                      .set("ssm.time_step_rank", uint32_t{1 << 20})
                      .set("ssm.state_size", uint32_t{1 << 20}));
      },
      ThrowsMessage<Error>(HasSubstr("the width of DeltaNet")));
}

TEST(Config, UnknownArchitectureListsTheSupported) {
  TinyModel model("qwen3next");
  model.metadata["general.architecture"] = std::string("llama");
  EXPECT_THAT([&] { config_of(model); },
              ThrowsMessage<Error>(HasSubstr("'llama' is not supported; supported: qwen3next, qwen3moe, "
                                             "qwen35moe")));
  model.metadata.erase("general.architecture");
  EXPECT_THAT([&] { config_of(model); }, ThrowsMessage<Error>(HasSubstr("general.architecture is missing")));
}

TEST(Config, VocabularyAndEmbeddingHaveToAgree) {
  TinyModel model("qwen3next");
  model.metadata["tokenizer.ggml.tokens"] = gguf::make_array(std::vector<std::string>{"a", "b"});
  EXPECT_THAT([&] { config_of(model); },
              ThrowsMessage<Error>(AllOf(HasSubstr("48 rows"), HasSubstr("2 tokens"))));
}

}  // namespace
}  // namespace redlite::model
