#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "quant/decode.h"
#include "reference/reference_runner.h"
#include "synth/profile.h"
#include "synth/shape.h"
#include "synth/synth.h"
#include "synth/tensors.h"
#include "synth/types.h"
#include "synth/vocabulary.h"

namespace redlite::synth {
namespace {

using ::testing::HasSubstr;

// A model in a file that disappears with the object.
class Written {
 public:
  explicit Written(Options options) : path_(fresh_path()) {
    if (options.preset.empty()) options.preset = "tiny";
    bytes_ = write_model(path_, options);
  }
  ~Written() { std::filesystem::remove(path_); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }

  static std::string fresh_path() {
    static int n = 0;
    const std::string path = fmt::format("{}synth_test_{}_{}.gguf", ::testing::TempDir(), ::getpid(), n++);
    std::filesystem::remove(path);
    return path;
  }

 private:
  std::string path_;
  uint64_t bytes_ = 0;
};

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

void expect_sane_tensors(const gguf::File& file) {
  std::vector<float> values;
  for (const gguf::TensorInfo& t : file.tensors()) {
    // Some rows from each end are enough for a tensor of many.
    const uint64_t rows =
        std::accumulate(t.shape.begin() + 1, t.shape.end(), uint64_t{1}, std::multiplies<>());
    const size_t n = std::min<uint64_t>(rows, 32) * t.shape[0];
    values.resize(n);
    const size_t bytes = quant::row_bytes(t.type, n);
    for (const std::byte* at : {file.data(t).data(), file.data(t).data() + t.bytes - bytes}) {
      quant::decode(t.type, at, values.data(), n);
      double squares = 0;
      for (const float v : values) {
        ASSERT_TRUE(std::isfinite(v)) << t.name;
        squares += double{v} * v;
      }
      EXPECT_GT(squares, 0) << t.name;
      if (t.shape.size() > 1 && t.name.find("conv1d") == std::string::npos) {
        EXPECT_LT(std::sqrt(squares / static_cast<double>(n)), 0.5) << t.name;
      }
    }
  }
}

// As where a converter widened what was trained in BF16.
TEST(Synth, RoutersInF32HaveValuesOfBf16) {
  const Written file({});
  const model::Model m(file.path());
  for (const model::LayerWeights& layer : m.weights().layers) {
    const model::Matrix& router = layer.ffn.router;
    ASSERT_EQ(router.type, quant::Type::F32);
    std::vector<float> values(static_cast<size_t>(router.rows) * static_cast<size_t>(router.cols));
    quant::decode(router.type, router.data, values.data(), values.size());
    for (const float v : values) ASSERT_EQ(bf16_to_f32(f32_to_bf16(v)), v);
  }
}

class EveryType : public ::testing::TestWithParam<quant::TypeInfo> {};

TEST_P(EveryType, FitsEveryRole) {
  const std::string name(GetParam().name);
  const Written file({.types = "all=" + name + ",ba=" + name + ",router=" + name});
  const model::Model m(file.path());
  EXPECT_EQ(m.weights().token_embd.type, GetParam().type);
  EXPECT_EQ(m.weights().output.type, GetParam().type);
  EXPECT_EQ(m.weights().layers[0].delta.qkv.type, GetParam().type);
  EXPECT_EQ(m.weights().layers[0].delta.ba.type, GetParam().type);
  EXPECT_EQ(m.weights().layers[3].attention.k.type, GetParam().type);
  EXPECT_EQ(m.weights().layers[3].ffn.shared_up.type, GetParam().type);
  EXPECT_EQ(m.weights().layers[3].ffn.router.type, GetParam().type);
  EXPECT_EQ(m.experts()[2].down.type, GetParam().type);
  expect_sane_tensors(m.file());
}

INSTANTIATE_TEST_SUITE_P(AllTypes, EveryType,
                         ::testing::ValuesIn(quant::all_types().begin(), quant::all_types().end()),
                         [](const auto& test) { return std::string(test.param.name); });

// The mean entropy of the distributions after each token, in nats.
double mean_entropy(std::span<const float> logits, int n_vocab) {
  double total = 0;
  const size_t n = logits.size() / static_cast<size_t>(n_vocab);
  for (size_t t = 0; t < n; ++t) {
    const auto row = logits.subspan(t * static_cast<size_t>(n_vocab), static_cast<size_t>(n_vocab));
    const double top = *std::max_element(row.begin(), row.end());
    double sum = 0;
    double weighted = 0;
    for (const float l : row) {
      sum += std::exp(l - top);
      weighted += std::exp(l - top) * (l - top);
    }
    total += std::log(sum) - weighted / sum;
  }
  return total / static_cast<double>(n);
}

struct Case {
  const char* architecture;
  const char* layout;
};

class EveryLayout : public ::testing::TestWithParam<Case> {};

TEST_P(EveryLayout, OpensAndGivesVariedLogits) {
  const Written file({.architecture = GetParam().architecture, .layout = GetParam().layout});
  const model::Model m(file.path());
  const model::Config& c = m.config();
  EXPECT_EQ(c.architecture, GetParam().architecture);
  EXPECT_EQ(c.n_layers, 4);
  const bool hybrid = c.architecture != "qwen3moe";
  EXPECT_EQ(c.layers[0], hybrid ? model::LayerKind::DeltaNet : model::LayerKind::Attention);
  EXPECT_EQ(c.layers[3], model::LayerKind::Attention);
  expect_sane_tensors(m.file());

  reference::ReferenceRunner runner(m, 32);
  std::vector<double> margins;
  double smallest = 1e9;
  double largest = 0;
  runner.set_tap([&](model::Stage stage, int, int, int width, std::span<const float> values) {
    if (stage == model::Stage::LayerOutput || stage == model::Stage::MixerOutput ||
        stage == model::Stage::FfnOutput) {
      double squares = 0;
      for (const float v : values) squares += double{v} * v;
      const double rms = std::sqrt(squares / static_cast<double>(values.size()));
      smallest = std::min(smallest, rms);
      largest = std::max(largest, rms);
    }
    if (stage != model::Stage::RouterLogits) return;
    for (size_t at = 0; at < values.size(); at += static_cast<size_t>(width)) {
      std::vector<float> row(values.begin() + static_cast<ptrdiff_t>(at),
                             values.begin() + static_cast<ptrdiff_t>(at) + width);
      std::sort(row.rbegin(), row.rend());
      const size_t k = static_cast<size_t>(c.n_experts_used);
      margins.push_back(row[k - 1] - row[k]);
    }
  });
  std::mt19937 random(1);
  std::vector<model::Token> tokens(24);
  for (model::Token& t : tokens) t = static_cast<model::Token>(random() % 1000);
  const std::span<const float> logits = runner.forward(tokens, model::LogitsFor::All);
  for (const float l : logits) ASSERT_TRUE(std::isfinite(l));
  const double entropy = mean_entropy(logits, c.n_vocab);
  EXPECT_GT(entropy, 3) << "nearly one-hot";
  EXPECT_LT(entropy, 6.5) << "nearly uniform, which is 6.93";
  // Every stage adds something, and nothing runs away.
  EXPECT_GT(smallest, 0.01 * largest);
  EXPECT_LT(largest, 1);
  std::sort(margins.begin(), margins.end());
  EXPECT_GT(margins[margins.size() / 2], 0.05) << "selections hang on near-ties";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EveryLayout,
    ::testing::Values(Case{"qwen3next", ""}, Case{"qwen3next", "ssm-in"}, Case{"qwen3next", "fused-gate-up"},
                      Case{"qwen3next", "tied-output"}, Case{"qwen3next", "recurrent-layers"},
                      Case{"qwen3next", "no-interval"}, Case{"qwen3next", "mtp"},
                      Case{"qwen3next", "mtp,recurrent-layers"}, Case{"qwen35moe", ""},
                      Case{"qwen35moe", "mtp"}, Case{"qwen35moe", "fused-gate-up,tied-output"},
                      Case{"qwen3moe", ""}, Case{"qwen3moe", "fused-gate-up"},
                      Case{"qwen3moe", "tied-output"}),
    [](const auto& test) {
      std::string name = std::string(test.param.architecture) + "_" + test.param.layout;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '-' || c == ','; }, '_');
      return name;
    });

TEST(Synth, LayoutsDifferAsNamed) {
  const auto has = [](const std::string& layout, const char* tensor) {
    const Written file({.layout = layout});
    return gguf::File(file.path()).find(tensor) != nullptr;
  };
  EXPECT_TRUE(has("", "blk.0.attn_qkv.weight"));
  EXPECT_FALSE(has("ssm-in", "blk.0.attn_qkv.weight"));
  EXPECT_TRUE(has("ssm-in", "blk.0.ssm_in.weight"));
  EXPECT_TRUE(has("fused-gate-up", "blk.0.ffn_gate_up_exps.weight"));
  EXPECT_FALSE(has("fused-gate-up", "blk.0.ffn_gate_exps.weight"));
  EXPECT_FALSE(has("tied-output", "output.weight"));
  EXPECT_TRUE(has("mtp", "blk.4.nextn.eh_proj.weight"));
  const Written interval({});
  EXPECT_EQ(gguf::File(interval.path()).get_uint("qwen3next.full_attention_interval"), 4);
  const Written none({.layout = "no-interval"});
  EXPECT_EQ(gguf::File(none.path()).find_value("qwen3next.full_attention_interval"), nullptr);
  EXPECT_EQ(gguf::File(none.path()).find_value("qwen3next.attention.recurrent_layers"), nullptr);
}

TEST(Synth, SameSeedSameBytes) {
  const Written one({.types = "experts=IQ1_M", .seed = 5, .threads = 1});
  const Written three({.types = "experts=IQ1_M", .seed = 5, .threads = 3});
  EXPECT_EQ(read_text_file(one.path()), read_text_file(three.path()));
  const Written other({.types = "experts=IQ1_M", .seed = 6});
  const gguf::File a(one.path());
  const gguf::File b(other.path());
  for (const gguf::TensorInfo& t : a.tensors()) {
    const auto x = a.data(t);
    const auto y = b.data(*b.find(t.name));
    EXPECT_FALSE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << t.name;
  }
}

TEST(Synth, ExpertsDiffer) {
  const Written file({});
  const model::Model m(file.path());
  for (int e = 1; e < m.config().n_experts; ++e) {
    const model::Matrix a = m.mapped_expert(0, 0).down;
    const model::Matrix b = m.mapped_expert(0, e).down;
    EXPECT_FALSE(std::equal(a.data, a.data + a.bytes(), b.data));
  }
}

TEST(Synth, StatesHowItWasMade) {
  const Written file({.mix = "published", .types = "q=Q8_0", .layout = "mtp", .seed = 9});
  const gguf::File f(file.path());
  EXPECT_EQ(f.get_string("redlite.synth.preset"), "tiny");
  EXPECT_EQ(f.get_uint("redlite.synth.seed"), 9);
  EXPECT_EQ(f.get_string("redlite.synth.mix"), "published");
  EXPECT_EQ(f.get_string("redlite.synth.types"), "q=Q8_0");
  EXPECT_EQ(f.get_string("redlite.synth.layout"), "mtp");
  EXPECT_GT(f.get_float("redlite.synth.token_rate"), 0.01);
  EXPECT_EQ(file.bytes(), std::filesystem::file_size(file.path()));
}

TEST(Synth, TakesAnotherModelsVocabulary) {
  const Written file({.vocabulary_from = REDLITE_DEMO_MODEL});
  const model::Model m(file.path());
  EXPECT_EQ(m.config().n_vocab, 4096);
  EXPECT_EQ(m.file().get_strings("tokenizer.ggml.tokens"),
            gguf::File(REDLITE_DEMO_MODEL).get_strings("tokenizer.ggml.tokens"));
  // Control tokens hardly ever win: a generation does not end by chance.
  reference::ReferenceRunner runner(m, 8);
  const auto logits = runner.forward(std::vector<model::Token>{300, 400, 500}, model::LogitsFor::Last);
  const uint64_t eos = m.file().get_uint("tokenizer.ggml.eos_token_id").value();
  EXPECT_LT(std::abs(logits[eos]), 0.3);
  EXPECT_GT(*std::max_element(logits.begin(), logits.end()), 4);
}

// Bytes of a preset's weights without writing them.
double planned_gib(const std::string& preset, const std::string& mix) {
  const Shape shape = preset_shape(preset);
  const Profile profile(shape, choose_knobs(shape));
  const std::vector<bool> text(static_cast<size_t>(shape.n_vocab), true);
  uint64_t total = 0;
  for (const TensorPlan& t : plan_tensors(shape, {}, TypePlan(mix, ""), profile, text)) total += t.bytes();
  return static_cast<double>(total) / (1 << 30);
}

TEST(Synth, PresetsHaveTheRealModelsSizes) {
  EXPECT_NEAR(planned_gib("qwen3-next-80b", "published"), 18.0, 0.1);
  EXPECT_NEAR(planned_gib("qwen3-next-80b", "simple"), 20.4, 0.1);
  EXPECT_NEAR(planned_gib("qwen3-next-80b", "iq3_xxs"), 28.8, 0.3);
  EXPECT_NEAR(planned_gib("qwen3-coder-next", "q4_k"), 42.0, 0.2);
  EXPECT_NEAR(planned_gib("qwen3-30b-a3b", "q4_k"), 16.1, 0.3);
  EXPECT_NEAR(planned_gib("qwen35-35b-a3b", "q4_k"), 18.7, 0.4);
  EXPECT_LT(planned_gib("small", "simple"), 1.0);
  EXPECT_GT(planned_gib("small", "simple"), 0.5);
}

TEST(Synth, PublishedMixHas37And11Layers) {
  const TypePlan types("published", "");
  int iq1_m = 0;
  int iq2_xs = 0;
  for (int l = 0; l < 48; ++l) {
    iq1_m += types.type(Role::ExpertUp, l, 48) == quant::Type::IQ1_M;
    iq2_xs += types.type(Role::ExpertUp, l, 48) == quant::Type::IQ2_XS;
  }
  EXPECT_EQ(iq1_m, 37);
  EXPECT_EQ(iq2_xs, 11);
}

TEST(SynthErrors, NameWhatDoesNotExist) {
  const auto error = [](Options options) {
    const std::string path = Written::fresh_path();
    const std::string message = error_of([&] { write_model(path, options); });
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  };
  EXPECT_THAT(error({.preset = "huge"}), HasSubstr("preset 'huge' is unknown; there are tiny, small"));
  EXPECT_THAT(error({.preset = "tiny", .architecture = "llama"}),
              HasSubstr("architecture 'llama' is unknown"));
  EXPECT_THAT(error({.preset = "qwen3-30b-a3b", .architecture = "qwen3next"}),
              HasSubstr("only tiny and small"));
  EXPECT_THAT(error({.preset = "tiny", .mix = "best"}),
              HasSubstr("mix 'best' is unknown; there are published"));
  EXPECT_THAT(error({.preset = "tiny", .types = "experts=Q9"}),
              HasSubstr("type 'Q9' is unknown; there are F32"));
  EXPECT_THAT(error({.preset = "tiny", .types = "brain=Q4_K"}),
              HasSubstr("role 'brain' is unknown; there are all"));
  EXPECT_THAT(error({.preset = "tiny", .types = "Q4_K"}), HasSubstr("not of the form role=TYPE"));
  EXPECT_THAT(error({.preset = "tiny", .layout = "odd"}),
              HasSubstr("layout 'odd' is unknown; there are ssm-in"));
  EXPECT_THAT(error({.preset = "tiny", .architecture = "qwen35moe", .layout = "ssm-in"}),
              HasSubstr("exists in qwen3next only"));
  EXPECT_THAT(error({.preset = "tiny", .architecture = "qwen3moe", .layout = "mtp"}),
              HasSubstr("do not exist in qwen3moe"));
  EXPECT_THAT(error({.preset = "tiny", .vocabulary_from = "/nonexistent.gguf"}), HasSubstr("cannot open"));
}

TEST(SynthErrors, RefuseAnExistingFile) {
  const Written file({});
  const std::string before = read_text_file(file.path());
  EXPECT_THAT(error_of([&] { write_model(file.path(), {.preset = "tiny", .seed = 1}); }),
              HasSubstr("already exists"));
  EXPECT_EQ(read_text_file(file.path()), before);
}

TEST(SynthErrors, LeaveNothingBehindWhenTheDiskIsFull) {
  const std::string folder = ::testing::TempDir() + "synth_full";
  std::filesystem::create_directory(folder);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1 << 20, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of([&] { write_model(folder + "/m.gguf", {.preset = "tiny"}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, HasSubstr("m.gguf"));
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << message;
  EXPECT_THAT(error_of([] { write_model("/nonexistent/m.gguf", {.preset = "tiny"}); }),
              HasSubstr("/nonexistent"));
  std::filesystem::remove(folder);
}

}  // namespace
}  // namespace redlite::synth
