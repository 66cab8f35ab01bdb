#include "cpu/cpu_runner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "cpu/kernels.h"
#include "model/temporary_model.h"
#include "reference/reference_runner.h"

namespace redlite::cpu {
namespace {

using experts::CacheSize;
using experts::ExpertCache;
using model::LogitsFor;
using model::Stage;
using model::Token;
using redlite::testing::some_tokens;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

size_t best(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Kullback-Leibler divergence of the distributions of two rows of logits.
double divergence(std::span<const float> p, std::span<const float> q) {
  const auto log_sum = [](std::span<const float> x) {
    const double max = x[best(x)];
    double sum = 0;
    for (const float v : x) sum += std::exp(v - max);
    return max + std::log(sum);
  };
  const double log_p = log_sum(p), log_q = log_sum(q);
  double result = 0;
  for (size_t i = 0; i < p.size(); ++i) result += std::exp(p[i] - log_p) * ((p[i] - log_p) - (q[i] - log_q));
  return result;
}

double mean_divergence(std::span<const float> p, std::span<const float> q, int n_vocab) {
  double sum = 0;
  const size_t width = static_cast<size_t>(n_vocab);
  for (size_t at = 0; at < p.size(); at += width)
    sum += divergence(p.subspan(at, width), q.subspan(at, width));
  return sum / static_cast<double>(p.size() / width);
}

/// Logits of a prompt, fed at once, and of a greedy continuation, one token after another.
std::vector<float> run(const model::Model& model, const CpuOptions& options, std::span<const Token> prompt,
                       int n_decode, std::vector<Token>* generated = nullptr) {
  CpuRunner runner(model, options);
  const std::span<const float> all = runner.forward(prompt, LogitsFor::All);
  std::vector<float> logits(all.begin(), all.end());
  const size_t n_vocab = static_cast<size_t>(model.config().n_vocab);
  for (int i = 0; i < n_decode; ++i) {
    const Token next = static_cast<Token>(best(std::span(logits).last(n_vocab)));
    if (generated != nullptr) generated->push_back(next);
    const std::span<const float> one = runner.forward({&next, 1}, LogitsFor::Last);
    logits.insert(logits.end(), one.begin(), one.end());
  }
  return logits;
}

/// Values of every stage, layer after layer.
using Taps = std::map<std::pair<int, Stage>, std::vector<float>>;

Taps taps_of(model::Runner& runner, std::span<const Token> tokens, int chunk) {
  Taps taps;
  runner.set_tap([&](Stage stage, int layer, int position, int width, std::span<const float> values) {
    std::vector<float>& all = taps[{layer, stage}];
    EXPECT_EQ(all.size(), static_cast<size_t>(position) * static_cast<size_t>(width)) << "out of order";
    EXPECT_EQ(values.size() % static_cast<size_t>(width), 0u);
    all.insert(all.end(), values.begin(), values.end());
  });
  for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(chunk))
    runner.forward(tokens.subspan(i, std::min(static_cast<size_t>(chunk), tokens.size() - i)),
                   LogitsFor::All);
  runner.set_tap({});
  return taps;
}

// With F32 weights nothing is rounded to 8 bits: every stage of every architecture and layout agrees with the
// double-precision reference up to single-precision rounding, which 300 tokens of recurrence and the norms
// of small values raise to a few 1e-5 of the largest value. A mistake is of the order of 1.
class Sharp : public ::testing::TestWithParam<int> {
 protected:
  void compare(const TinyModel& tiny) const {
    const TemporaryModel file(tiny);
    const model::Model model(file.path());
    reference::ReferenceRunner reference(model, 400);
    CpuOptions options;
    options.context = 400;
    options.threads = 2;
    CpuRunner runner(model, options);
    const std::vector<Token> tokens = some_tokens(300, TinyModel::kVocab);  // more than a block of positions
    const Taps expected = taps_of(reference, tokens, 300);
    const Taps actual = taps_of(runner, tokens, GetParam());
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [key, values] : expected) {
      const std::vector<float>& ours = actual.at(key);
      ASSERT_EQ(ours.size(), values.size());
      float largest = 0, error = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(values[i]));
        error = std::max(error, std::abs(values[i] - ours[i]));
      }
      const float bound = key.second == Stage::ExpertIds ? 0 : 1e-4f * largest;
      EXPECT_LE(error, bound) << "layer " << key.first << ", " << model::stage_name(key.second);
    }
  }
};

TEST_P(Sharp, Qwen3Next) {
  compare(TinyModel("qwen3next"));
}
TEST_P(Sharp, Qwen35Moe) {
  compare(TinyModel("qwen35moe"));
}
TEST_P(Sharp, Qwen3Moe) {
  compare(TinyModel("qwen3moe"));
}
TEST_P(Sharp, OlderLayouts) {
  compare(TinyModel("qwen3next").use_ssm_in(0).use_ssm_in(2).fuse_gate_up(1).fuse_attention(3).tie_output());
}
INSTANTIATE_TEST_SUITE_P(Chunks, Sharp, ::testing::Values(1, 7, 300));

// A file cut short while the runner uses it: an error that names it, not wrong numbers.
TEST(CpuRunner, UnreadableExpertsAreAnError) {
  TinyModel tiny("qwen3next");
  const auto last = std::ranges::find(tiny.tensors, "blk.3.ffn_down_exps.weight", &TinyModel::Tensor::name);
  ASSERT_NE(last, tiny.tensors.end());
  std::rotate(last, last + 1, tiny.tensors.end());  // no dense weights behind it
  const TemporaryModel file(tiny);
  const model::Model model(file.path());
  CpuOptions options;
  options.cache.size = {CacheSize::Kind::Bounded, ExpertCache::minimum_bytes(model)};
  CpuRunner runner(model, options);
  std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 8192);
  const std::vector<Token> tokens = some_tokens(40, TinyModel::kVocab);
  EXPECT_THAT([&] { runner.forward(tokens, LogitsFor::Last); }, ThrowsMessage<Error>(HasSubstr(file.path())));
  runner.reset();
  EXPECT_EQ(runner.position(), 0);
}

class DemoModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new model::Model(REDLITE_DEMO_MODEL); }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }

  static const model::Model& model() { return *model_; }
  static int n_vocab() { return model().config().n_vocab; }
  static CpuOptions bounded(uint64_t bytes) {
    CpuOptions options;
    options.cache.size = {CacheSize::Kind::Bounded, bytes};
    return options;
  }

 private:
  static model::Model* model_;
};
model::Model* DemoModel::model_ = nullptr;

// Quantised weights meet activations of 8 bits: close to the reference, not equal.
TEST_F(DemoModel, CloseToTheReference) {
  const std::vector<Token> tokens = some_tokens(24, n_vocab());
  reference::ReferenceRunner reference(model(), 64);
  const std::span<const float> expected = reference.forward(tokens, LogitsFor::All);
  const std::vector<float> actual = run(model(), {}, tokens, 0);
  EXPECT_LT(mean_divergence(expected, actual, n_vocab()), 2e-2);
}

// The promise of the expert cache and of the threads: not a bit changes.
TEST_F(DemoModel, SameBitsForAnyCachePrefetchAndThreads) {
  const std::vector<Token> prompt = some_tokens(24, n_vocab());
  CpuOptions options;
  options.threads = 1;
  const std::vector<float> expected = run(model(), options, prompt, 8);

  const uint64_t full = ExpertCache::full_bytes(model());
  const uint64_t minimum = ExpertCache::minimum_bytes(model());
  constexpr std::pair<bool, int> kPrefetchAndThreads[] = {{true, 2}, {false, 1}, {true, 3}, {false, 2}};
  for (const uint64_t bytes : {full, full / 2, full / 4, minimum}) {
    for (const auto& [prefetch, threads] : kPrefetchAndThreads) {
      options = bounded(bytes);
      options.cache.prefetch = prefetch;
      options.threads = threads;
      EXPECT_EQ(run(model(), options, prompt, 8), expected)
          << bytes << " bytes, prefetch " << prefetch << ", " << threads << " threads";
    }
  }
}

// Blocks of positions, the sums of products and the recurrence do not depend on how tokens come in.
TEST_F(DemoModel, SameBitsForAnyChunks) {
  const std::vector<Token> prompt = some_tokens(70, n_vocab());
  const std::vector<float> expected = run(model(), {}, prompt, 8);
  for (const int batch : {1, 7, 64}) {
    CpuOptions options;
    options.batch = batch;
    EXPECT_EQ(run(model(), options, prompt, 8), expected) << "chunks of " << batch;
  }
}

// A prefill of more tokens than predictions are made for, in caches of one wave and of several.
TEST_F(DemoModel, LongChunksReadAheadAndKeepTheBits) {
  const std::vector<Token> prompt = some_tokens(300, n_vocab());
  const std::vector<float> expected = run(model(), {}, prompt, 2);
  const uint64_t minimum = ExpertCache::minimum_bytes(model());
  for (const uint64_t bytes : {ExpertCache::full_bytes(model()) / 2, minimum * 4, minimum}) {
    EXPECT_EQ(run(model(), bounded(bytes), prompt, 2), expected) << bytes << " bytes";
  }
  CpuRunner runner(model(), bounded(ExpertCache::full_bytes(model()) / 2));
  runner.forward(prompt, LogitsFor::None);
  const experts::CacheStats stats = runner.cache_stats();
  EXPECT_GT(stats.prefetched, 50u);
  EXPECT_LT(stats.prefetch_wasted, stats.prefetched / 4);
}

TEST_F(DemoModel, ABoundedCacheMissesAndReads) {
  const std::vector<Token> prompt = some_tokens(8, n_vocab());
  CpuOptions options = bounded(ExpertCache::full_bytes(model()) / 4);
  options.cache.prefetch = false;
  CpuRunner runner(model(), options);
  for (const Token token : prompt) runner.forward({&token, 1}, LogitsFor::None);
  const experts::CacheStats without = runner.cache_stats();
  EXPECT_GT(without.misses, 0u);
  EXPECT_GT(without.bytes_read, 0u);
  EXPECT_EQ(without.prefetched, 0u);
  EXPECT_EQ(
      without.hits + without.misses,
      prompt.size() * static_cast<uint64_t>(model().config().n_layers * model().config().n_experts_used));

  options.cache.prefetch = true;
  CpuRunner predicting(model(), options);
  for (const Token token : prompt) predicting.forward({&token, 1}, LogitsFor::None);
  const experts::CacheStats with = predicting.cache_stats();
  EXPECT_GT(with.prefetch_useful, 0u);
  EXPECT_LT(with.misses, without.misses);
}

TEST_F(DemoModel, SameBitsInEveryInstructionSet) {
  const std::vector<Token> prompt = some_tokens(24, n_vocab());
  for (const KvType kv : {KvType::F32, KvType::F16}) {
    CpuOptions options;
    options.kv = kv;
    options.kernels = "scalar";
    const std::vector<float> expected = run(model(), options, prompt, 4);
    for (const std::string_view name : available_kernels()) {
      options.kernels = name;
      EXPECT_EQ(CpuRunner(model(), options).kernels(), name);
      EXPECT_EQ(run(model(), options, prompt, 4), expected) << name;
    }
  }
  CpuOptions options;
  options.kernels = "abacus";
  EXPECT_THAT([&] { CpuRunner(model(), options); },
              ThrowsMessage<Error>(HasSubstr("no kernels named 'abacus' on this processor; there are: ")));
}

TEST_F(DemoModel, HalfPrecisionKeysAndValues) {
  const std::vector<Token> prompt = some_tokens(100, n_vocab());
  CpuOptions options;
  const std::vector<float> expected = run(model(), options, prompt, 0);
  const uint64_t state = CpuRunner::memory_needed(model(), options).state;
  options.kv = KvType::F16;
  const std::vector<float> actual = run(model(), options, prompt, 0);
  EXPECT_NE(actual, expected) << "the switch does nothing";
  EXPECT_LT(mean_divergence(expected, actual, n_vocab()), 4e-3);

  const model::Config& c = model().config();
  const auto attention = std::count(c.layers.begin(), c.layers.end(), model::LayerKind::Attention);
  const uint64_t kv = static_cast<uint64_t>(attention) * 2 * static_cast<uint64_t>(c.n_kv_heads) *
                      static_cast<uint64_t>(c.head_dim) * 4096 * sizeof(float);
  EXPECT_EQ(CpuRunner::memory_needed(model(), options).state, state - kv / 2);
}

TEST_F(DemoModel, LogitsWhereAsked) {
  const std::vector<Token> prompt = some_tokens(10, n_vocab());
  const std::vector<float> all = run(model(), {}, prompt, 0);
  CpuOptions options;
  options.batch = 4;
  CpuRunner runner(model(), options);
  EXPECT_TRUE(runner.forward(std::span(prompt).first(3), LogitsFor::None).empty());
  const std::span<const float> last = runner.forward(std::span(prompt).subspan(3), LogitsFor::Last);
  ASSERT_EQ(last.size(), static_cast<size_t>(n_vocab()));
  EXPECT_TRUE(std::ranges::equal(last, std::span(all).last(last.size())));
  EXPECT_EQ(runner.position(), 10);
  EXPECT_TRUE(runner.forward({}, LogitsFor::Last).empty());
}

TEST_F(DemoModel, ResetForgets) {
  const std::vector<Token> prompt = some_tokens(20, n_vocab());
  const std::vector<float> expected = run(model(), {}, prompt, 0);
  CpuRunner runner(model(), {});
  runner.forward(some_tokens(33, 7), LogitsFor::None);
  runner.reset();
  EXPECT_EQ(runner.position(), 0);
  EXPECT_TRUE(std::ranges::equal(runner.forward(prompt, LogitsFor::All), expected));
}

TEST_F(DemoModel, RewindsToAMark) {
  const std::vector<Token> prompt = some_tokens(70, n_vocab());
  const std::vector<Token> other(prompt.rbegin(), prompt.rend());
  CpuRunner runner(model(), {});
  runner.forward(prompt, LogitsFor::None);
  const std::unique_ptr<model::Mark> mark = runner.mark();
  const std::span<const float> logits = runner.forward(prompt, LogitsFor::All);
  const std::vector<float> expected(logits.begin(), logits.end());
  for (int round = 0; round < 2; ++round) {
    runner.forward(other, LogitsFor::None);
    runner.rewind(*mark);
    EXPECT_EQ(runner.position(), 70);
    EXPECT_TRUE(std::ranges::equal(runner.forward(prompt, LogitsFor::All), expected)) << round;
  }
}

// Prompts of any length and tokens of decode, of several sequences in a pass: each gets its own bits.
TEST_F(DemoModel, SequencesTogetherGetTheBitsTheyGetAlone) {
  constexpr int kSequences = 3, kRounds = 6;
  constexpr int kPrompt[kSequences] = {41, 1, 270};
  std::vector<std::vector<float>> expected;
  std::vector<std::vector<Token>> tokens;
  for (int i = 0; i < kSequences; ++i) {
    tokens.push_back(some_tokens(kPrompt[i] + i, n_vocab()));
    tokens[i].erase(tokens[i].begin(), tokens[i].begin() + i);
    std::vector<Token> generated;
    expected.push_back(run(model(), {}, tokens[i], kRounds, &generated));
    expected[i].erase(expected[i].begin(), expected[i].begin() + (kPrompt[i] - 1) * n_vocab());
    tokens[i].insert(tokens[i].end(), generated.begin(), generated.end());
  }
  for (const int batch : {2, 64, 2048}) {
    CpuOptions options = batch == 64 ? bounded(ExpertCache::full_bytes(model()) / 4) : CpuOptions();
    options.batch = std::max(batch, kSequences);
    CpuRunner runner(model(), options);
    ASSERT_GE(runner.most_sequences(), kSequences);
    std::vector<std::unique_ptr<model::Sequence>> sequences;
    std::vector<std::vector<float>> actual(kSequences);
    for (int i = 0; i < kSequences; ++i) sequences.push_back(runner.make_sequence());
    // Sequence i begins in round i, its prompt beside the others' single tokens.
    for (int round = 0; round < kRounds + kSequences; ++round) {
      std::vector<model::Part> parts;
      std::vector<int> who;
      for (int i = std::min(round, kSequences - 1); i >= 0; --i) {
        const int position = sequences[i]->position();
        const std::span<const Token> all = tokens[i];
        if (position == static_cast<int>(all.size())) continue;
        const int n = position == 0 ? kPrompt[i] : 1;
        parts.push_back({sequences[i].get(), all.subspan(position, n), LogitsFor::Last});
        who.push_back(i);
      }
      const std::span<const float> logits = runner.forward_together(parts);
      ASSERT_EQ(logits.size(), parts.size() * n_vocab());
      for (size_t i = 0; i < who.size(); ++i) {
        const std::span<const float> row = logits.subspan(i * n_vocab(), n_vocab());
        actual[who[i]].insert(actual[who[i]].end(), row.begin(), row.end());
      }
    }
    EXPECT_EQ(actual, expected) << "chunks of " << batch;
    EXPECT_EQ(runner.position(), 0) << "the runner's own sequence is another one";
  }
}

// Keys, values and recurrent states as bytes: what goes on from there has the bits of the original.
TEST_F(DemoModel, AStateGoesToAnotherRunner) {
  const std::vector<Token> prompt = some_tokens(70, n_vocab());
  const std::vector<Token> more = some_tokens(9, 100);
  for (const KvType kv : {KvType::F32, KvType::F16}) {
    CpuOptions options;
    options.kv = kv;
    CpuRunner runner(model(), options);
    const auto sequence = runner.make_sequence();
    const auto forward = [](CpuRunner& with, model::Sequence& to, std::span<const Token> tokens) {
      const model::Part part{&to, tokens, LogitsFor::All};
      const std::span<const float> logits = with.forward_together({&part, 1});
      return std::vector<float>(logits.begin(), logits.end());
    };
    forward(runner, *sequence, std::span(prompt).first(40));
    const std::unique_ptr<model::Mark> mark = sequence->mark();
    forward(runner, *sequence, std::span(prompt).subspan(40));
    const model::Sequence::StateBytes size = sequence->state_bytes().value();
    EXPECT_GT(size.mark, 0u);
    EXPECT_EQ(mark->bytes().size(), size.mark);
    std::vector<std::byte> positions(size.position * 50);
    sequence->save_positions(50, positions);
    sequence->rewind(*mark);
    const std::vector<float> expected = forward(runner, *sequence, more);

    options.context = 128;  // rows lie elsewhere
    CpuRunner other(model(), options);
    EXPECT_EQ(other.state_format(), runner.state_format());
    const auto restored = other.make_sequence();
    forward(other, *restored, some_tokens(60, 50));
    restored->load_positions(50, positions);
    restored->rewind(*restored->load_mark(40, mark->bytes()));
    EXPECT_EQ(restored->position(), 40);
    EXPECT_EQ(forward(other, *restored, more), expected);
  }
}

// Stopped after any layer of a pass, a sequence goes on from its mark as if nothing had happened.
TEST_F(DemoModel, StopsAfterAnyLayer) {
  const std::vector<Token> prompt = some_tokens(30, n_vocab());
  CpuRunner runner(model(), bounded(ExpertCache::full_bytes(model()) / 4));
  runner.forward(prompt, LogitsFor::None);
  const std::unique_ptr<model::Mark> mark = runner.mark();
  const std::span<const float> logits = runner.forward(prompt, LogitsFor::All);
  const std::vector<float> expected(logits.begin(), logits.end());
  for (int layers = 0; layers < model().config().n_layers; ++layers) {
    runner.rewind(*mark);
    int left = layers;
    runner.set_stop([&] { return left-- == 0; });
    EXPECT_THROW(runner.forward(prompt, LogitsFor::All), model::Stopped);
    EXPECT_EQ(left, -1);
    EXPECT_EQ(runner.position(), 30);
    runner.set_stop({});
    runner.rewind(*mark);
    EXPECT_TRUE(std::ranges::equal(runner.forward(prompt, LogitsFor::All), expected)) << layers << " layers";
  }
}

TEST_F(DemoModel, BadRequests) {
  CpuOptions options;
  options.context = 8;
  CpuRunner runner(model(), options);
  EXPECT_EQ(runner.capacity(), 8);
  const std::vector<Token> tokens = some_tokens(5, n_vocab());
  runner.forward(tokens, LogitsFor::None);
  EXPECT_THAT(
      [&] { runner.forward(tokens, LogitsFor::None); },
      ThrowsMessage<Error>("5 tokens after 5 do not fit into a context of 8; use a larger context or a "
                           "shorter text"));
  const Token beyond = n_vocab(), negative = -1;
  EXPECT_THAT(
      [&] {
        runner.forward({&beyond, 1}, LogitsFor::None);
      },
      ThrowsMessage<Error>(HasSubstr("is outside the vocabulary")));
  EXPECT_THAT(
      [&] {
        runner.forward({&negative, 1}, LogitsFor::None);
      },
      ThrowsMessage<Error>(HasSubstr("token -1 is outside")));
  EXPECT_EQ(runner.position(), 5) << "a refused request changes nothing";

  options.context = -1;
  EXPECT_THAT([&] { CpuRunner(model(), options); }, ThrowsMessage<Error>(HasSubstr("context of -1")));
  options = {};
  options.batch = 0;
  EXPECT_THAT([&] { CpuRunner(model(), options); }, ThrowsMessage<Error>(HasSubstr("batch of 0")));
  options = {};
  options.threads = -2;
  EXPECT_THAT([&] { CpuRunner(model(), options); }, ThrowsMessage<Error>(HasSubstr("-2 threads")));
}

TEST_F(DemoModel, StageTimesAddUp) {
  CpuRunner runner(model(), {});
  const auto start = std::chrono::steady_clock::now();
  runner.forward(some_tokens(64, n_vocab()), LogitsFor::Last);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const StageTimes t = runner.stage_times();
  for (const double stage : {t.embedding, t.attention, t.delta_net, t.router, t.experts, t.output})
    EXPECT_GT(stage, 0);
  const double sum = t.embedding + t.attention + t.delta_net + t.router + t.experts + t.output;
  EXPECT_LE(sum, wall);
  EXPECT_GT(sum, 0.9 * wall);
}

}  // namespace
}  // namespace redlite::cpu
