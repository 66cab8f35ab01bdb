#include "plan/gpu_plan.h"

#include <gmock/gmock.h>

#include "bench/workload.h"
#include "model/temporary_model.h"

namespace redlite::plan {
namespace {

using gpu::Residency;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

model::Config small_config() {
  model::Config c;
  c.n_layers = 10;
  c.n_experts = 100;
  c.n_experts_used = 10;
  return c;
}

// Half of the experts in slots: a text misses a tenth, of which prefetch leaves half, 5 of a token's 100,
// each 100 us; a random token misses 30.
TEST(PredictGpu, MissesCostTheirTime) {
  GpuProbe probe;
  probe.token_seconds = 0.002;
  probe.miss_seconds = 100e-6;
  probe.kept = 0.5;
  probe.prompt_seconds = 0.5;
  probe.prompt_kernel_seconds = 0.25;
  MissCurves curves;
  curves.text.assign(101, 0.1);
  curves.prompt.assign(101, 0.6);

  GpuChoice device{.residency = Residency::device, .cache = 500};
  predict_gpu(small_config(), 1000, probe, curves, 512, device);
  EXPECT_THAT(device.hit_rate, DoubleNear(0.95, 1e-9));
  EXPECT_THAT(device.decode_tok_s, DoubleNear(1 / 0.0025, 1e-6));
  EXPECT_THAT(device.prefill_tok_s, DoubleNear(1024, 1e-6)) << "all experts over the bus";
  predict_gpu(small_config(), 1000, probe, curves, 64, device);
  EXPECT_THAT(device.prefill_tok_s, DoubleNear(1 / 0.005, 1e-6)) << "a short prompt goes token by token";

  GpuChoice host{.residency = Residency::host, .cache = 500};
  predict_gpu(small_config(), 1000, probe, curves, 512, host);
  EXPECT_THAT(host.prefill_tok_s, DoubleNear(1024, 1e-6));

  GpuChoice full{.residency = Residency::full, .cache = 1000};
  predict_gpu(small_config(), 1000, probe, curves, 512, full);
  EXPECT_EQ(full.hit_rate, 1);
  EXPECT_THAT(full.decode_tok_s, DoubleNear(500, 1e-6));
  EXPECT_THAT(full.prefill_tok_s, DoubleNear(2048, 1e-6));
}

// The emulator's speeds mean nothing, but every figure must come out of the run.
TEST(ProbeGpu, FindsItsFiguresInBothResidencies) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  MissCurves curves;
  for (const Residency residency : {Residency::device, Residency::host}) {
    gpu::GpuOptions options{.context = 32, .batch = 16, .streamed_from = 6};
    options.experts.residency = residency;
    options.experts.cache_bytes = gpu::DeviceModel::expert_bytes(model) / 2;
    if (residency == Residency::host) options.experts.cache_bytes = *options.experts.cache_bytes * 2;
    gpu::GpuRunner runner(model, gpu::open_emulator({.threads = 1}), options);
    double last = 0;
    const GpuProbe probe = probe_gpu(runner, model, 1e9, 6, 10, curves, [&](double part) {
      EXPECT_GE(part, last);
      last = part;
    });
    EXPECT_EQ(last, 1);
    EXPECT_GT(probe.token_seconds, 0);
    EXPECT_GE(probe.miss_seconds,
              static_cast<double>(model.expert_bytes()) / TinyModel::kLayers / TinyModel::kExperts / 1e9);
    EXPECT_GT(probe.kept, 0);
    EXPECT_LE(probe.kept, 1);
    const bool device = residency == Residency::device;
    EXPECT_GT(probe.prompt_seconds, 0);
    EXPECT_EQ(probe.prompt_kernel_seconds > 0, device);
    EXPECT_EQ(runner.profile(), nullptr);
  }
  for (const std::vector<double>* curve : {&curves.text, &curves.prompt}) {
    EXPECT_EQ(curve->size(), TinyModel::kExperts + 1u);
    EXPECT_TRUE(std::ranges::is_sorted(*curve, std::greater<>()));
    EXPECT_EQ(curve->front(), 1);
    EXPECT_EQ(curve->back(), 0);
  }
}

// What a cache that is too small for a text misses, beside prefetch, is what the runner then counts.
TEST(ProbeGpu, ForetellsTheHitsOfACache) {
  const TemporaryModel file(TinyModel("qwen3moe"));
  const model::Model model(file.path());
  const uint64_t all = gpu::DeviceModel::expert_bytes(model);
  gpu::GpuOptions options{.context = 64, .batch = 16, .streamed_from = 64};
  options.experts.residency = Residency::device;
  options.experts.cache_bytes = all / 2;
  gpu::GpuRunner runner(model, gpu::open_emulator({.threads = 1}), options);
  MissCurves curves;
  const GpuProbe probe = probe_gpu(runner, model, 1e9, 6, 32, curves, [](double) {});
  GpuChoice choice{.residency = Residency::device, .cache = all / 2};
  predict_gpu(model.config(), all, probe, curves, 6, choice);

  runner.reset();
  const auto write = [&](int n) {
    bench::Writer writer(TinyModel::kVocab);
    model::Token token = writer.first();
    for (int i = 0; i < n; ++i) token = writer.next(runner.forward({&token, 1}, model::LogitsFor::Last));
  };
  write(8);
  const gpu::GpuRunner::Selections before = runner.selections();
  write(32);
  const gpu::GpuRunner::Selections after = runner.selections();
  const double hits =
      static_cast<double>(after.hits - before.hits) / static_cast<double>(after.all - before.all);
  EXPECT_LT(hits, 0.95) << "nothing to foretell";
  EXPECT_NEAR(choice.hit_rate, hits, 0.1);
}

// Small models are run wherever they fit; what does not fit is said, not run.
TEST(MakeGpuPlan, RunsASmallModelAtEachChoice) {
  const TemporaryModel file(TinyModel("qwen3next"));
  const model::Model model(file.path());
  Options options;
  options.context = 64;
  options.prompt = 4;
  const GpuPlan plan = make_gpu_plan(
      model, options, [] { return gpu::open_emulator({.threads = 1}); }, /*emulated=*/true,
      [](const std::string&, double) {});
  EXPECT_TRUE(plan.measured);
  EXPECT_GT(plan.bus, 0);
  EXPECT_GT(plan.bandwidth, 0);
  ASSERT_FALSE(plan.choices.empty());
  EXPECT_EQ(plan.choices[0].residency, Residency::full);
  for (const GpuChoice& choice : plan.choices) {
    EXPECT_TRUE(choice.fits);
    EXPECT_GT(choice.prefill_tok_s, 0);
    EXPECT_GT(choice.decode_tok_s, 0);
    EXPECT_GT(choice.memory, choice.cache);
  }
  EXPECT_TRUE(plan.recommendation);
}

}  // namespace
}  // namespace redlite::plan
