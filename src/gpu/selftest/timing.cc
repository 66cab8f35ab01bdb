#include "gpu/selftest/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/codebooks.h"
#include "gpu/kernels/attend.h"
#include "gpu/kernels/delta_step.h"
#include "gpu/kernels/experts.h"
#include "gpu/kernels/project.h"
#include "gpu/kernels/route.h"
#include "gpu/prefill_products.h"
#include "quant/random_blocks.h"

namespace redlite::gpu {
namespace {

constexpr int kLaunches = 64;  ///< in a graph
constexpr int kReplays = 9;
constexpr size_t kBeyondCaches = size_t{512} << 20;

/// Median milliseconds of a replay.
double time_graph(Device& device, Stream& stream, const Graph& graph) {
  const auto start = device.create_event(), end = device.create_event();
  std::vector<double> times;
  for (int i = 0; i < kReplays + 2; ++i) {
    stream.record(*start);
    stream.replay(graph);
    stream.record(*end);
    stream.synchronize();
    if (i >= 2) times.push_back(end->milliseconds_since(*start));
  }
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2];
}

/// `launch(i)` puts launch number i of a chain into the stream.
TimingLine time_chain(Device& device, Stream& stream, std::string name, size_t bytes,
                      const std::function<void(size_t)>& launch) {
  stream.synchronize();
  stream.begin_capture();
  for (size_t i = 0; i < kLaunches; ++i) launch(i);
  const auto graph = stream.end_capture();
  const double us = time_graph(device, stream, *graph) * 1e3 / kLaunches;
  return {std::move(name), us, static_cast<double>(bytes) / us * 1e-3};
}

/// Many copies of something of random blocks, more than the caches hold.
class Pool {
 public:
  Pool(Device& device, Stream& stream, std::vector<std::byte> one, size_t most)
      : bytes_(one.size()), n_(std::clamp<size_t>(most / one.size(), 1, 16 * kLaunches)) {
    memory_ = device.allocate(n_ * bytes_, "matrices to time");
    const WaitAtExit wait(stream);
    for (size_t i = 0; i < n_; ++i) stream.copy(memory_.as() + i * bytes_, one.data(), bytes_);
    stream.synchronize();
  }
  const std::byte* at(size_t i) const { return memory_.as() + i % n_ * bytes_; }
  const std::byte* data() const { return memory_.as(); }
  size_t n() const { return n_; }

 private:
  size_t bytes_, n_;
  Buffer memory_;
};

std::vector<std::byte> random_planes(quant::Type type, int rows, int cols) {
  std::mt19937 random(1);
  const size_t values = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  const std::vector<std::byte> blocks =
      quant::random_blocks(type, values / quant::info(type).block_values, random);
  std::vector<std::byte> planes(plane_bytes(type, rows, cols));
  repack(type, rows, cols, blocks.data(), planes.data());
  return planes;
}

/// What all chains have: ones, zeros and room for results.
struct Bench {
  Bench(Device& d, Stream& s) : device(d), stream(s), books(upload_codebooks(d, s)) {
    const std::vector<float> values(kValues, 1.0f);
    const WaitAtExit wait(s);
    ones = device.allocate(values.size() * sizeof(float), "activations");
    stream.copy(ones.as(), values.data(), ones.bytes());
    zeros = device.allocate(ones.bytes(), "zeros");
    stream.fill(zeros.as(), 0, zeros.bytes());
    out = device.allocate(ones.bytes(), "results");
    more_out = device.allocate(ones.bytes(), "results");
    stream.synchronize();
  }
  Shape shape(Dim3 grid, size_t shared) const {
    return {.grid = grid, .threads = kStepThreads, .dynamic_shared = shared, .early_start = true};
  }

  static constexpr size_t kValues = 1 << 18;
  Device& device;
  Stream& stream;
  Buffer books, ones, zeros, out, more_out;
};

TimingLine time_project(Bench& b, quant::Type type, int rows, int cols, bool norm, size_t pool_bytes) {
  const Pool pool(b.device, b.stream, random_planes(type, rows, cols), pool_bytes);
  const size_t bytes = plane_bytes(type, rows, cols);
  return time_chain(
      b.device, b.stream,
      fmt::format("project {} {} x {}{}", quant::name(type), rows, cols, norm ? ", norm" : ""), bytes,
      [&](size_t i) {
        const DeviceMatrix matrix = device_matrix(type, rows, cols, pool.at(i));
        const Projection projection = make_projection({&matrix, 1}, norm, b.device.info().multiprocessors);
        Project::Params p{.input = {.x = b.ones.as<float>(),
                                    .n = cols,
                                    .weight = norm ? b.ones.as<float>() : nullptr,
                                    .eps = 1e-6f,
                                    .rounded = b.ones.as()},
                          .parts = {projection.parts[0]},
                          .n_parts = 1,
                          .y = b.out.as<float>(),
                          .residual = nullptr,
                          .y_stride = rows,
                          .codebooks = b.books.as<Codebooks>(),
                          .layout = projection.layout};
        b.stream.launch<Project>(
            b.shape({static_cast<uint32_t>(projection.n_blocks)}, projection.layout.bytes), p);
      });
}

/// The experts of the 80B: ten of 512 x 2048 and a shared one.
void time_experts(Bench& b, quant::Type type, quant::Type shared, size_t pool_bytes,
                  const std::function<void(const TimingLine&)>& report) {
  constexpr int kN = 2048, kFf = 512, kUsed = 10;
  const auto expert = [&](quant::Type t) {
    std::vector<std::byte> out = random_planes(t, kFf, kN), down = random_planes(t, kN, kFf);
    out.insert(out.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(plane_bytes(t, kFf, kN)));
    out.insert(out.end(), down.begin(), down.end());
    return out;
  };
  const auto matrices = [&](quant::Type t, const std::byte* at) {
    const size_t gate = plane_bytes(t, kFf, kN);
    return ExpertMatrices{device_matrix(t, kFf, kN, at), device_matrix(t, kFf, kN, at + gate),
                          device_matrix(t, kN, kFf, at + 2 * gate)};
  };
  const std::vector<std::byte> one = expert(type), shared_one = expert(shared);
  const Pool pool(b.device, b.stream, one, pool_bytes),
      shared_pool(b.device, b.stream, shared_one, pool_bytes / 8);
  std::mt19937 random(1);
  std::vector<int32_t> slots(kLaunches * kUsed);
  for (int32_t& slot : slots) slot = static_cast<int32_t>(random() % pool.n());
  const Buffer slots_device = b.device.allocate(slots.size() * sizeof(int32_t), "slots");
  const WaitAtExit wait(b.stream);
  b.stream.copy(slots_device.as(), slots.data(), slots_device.bytes());
  const auto layer = [&](size_t i) {
    LayerExperts out{};
    out.slot = matrices(type, pool.data());
    out.slot_bytes = one.size();
    out.shared = matrices(shared, shared_pool.at(i));
    out.n_used = kUsed;
    out.has_shared = true;
    return out;
  };
  const size_t gate = plane_bytes(type, kFf, kN), down = plane_bytes(type, kN, kFf);
  const size_t shared_gate = plane_bytes(shared, kFf, kN), shared_down = plane_bytes(shared, kN, kFf);
  const std::string names = fmt::format("{} + {}", quant::name(type), quant::name(shared));
  report(time_chain(
      b.device, b.stream, "experts gate, up " + names, 2 * (kUsed * gate + shared_gate), [&](size_t i) {
        const LayerExperts experts = layer(i);
        const ProductLayout layout = ExpertsGateUp::layout(experts, kN);
        b.stream.launch<ExpertsGateUp>(b.shape({ExpertsGateUp::blocks(kFf), kUsed + 1}, layout.bytes),
                                       {.experts = experts,
                                        .input = b.ones.as<float>(),
                                        .rounded = b.ones.as(),
                                        .slots = slots_device.as<int32_t>() + i * kUsed,
                                        .hidden = b.out.as<float>(),
                                        .hidden_rounded = b.more_out.as(),
                                        .codebooks = b.books.as<Codebooks>(),
                                        .hidden_stride = kFf,
                                        .n = kN,
                                        .layout = layout});
      }));
  report(time_chain(b.device, b.stream, "experts down " + names, kUsed * down + shared_down, [&](size_t i) {
    const LayerExperts experts = layer(i);
    const ProductLayout layout = ExpertsDown::layout(experts, kFf);
    b.stream.launch<ExpertsDown>(b.shape({ExpertsDown::blocks(kN)}, layout.bytes),
                                 {.experts = experts,
                                  .hidden = b.ones.as<float>(),
                                  .hidden_rounded = b.ones.as(),
                                  .slots = slots_device.as<int32_t>() + i * kUsed,
                                  .scores = b.ones.as<float>(),
                                  .residual = b.out.as<float>(),
                                  .shown = nullptr,
                                  .codebooks = b.books.as<Codebooks>(),
                                  .scale = 1,
                                  .hidden_stride = kFf,
                                  .n = kN,
                                  .layout = layout});
  }));
}

/// A prompt of 2048 tokens: a dense matrix, or 512 experts of which each token selects ten.
TimingLine time_prefill_product(Bench& b, quant::Type type, int rows, int cols, int n_experts,
                                size_t pool_bytes) {
  constexpr int kTokens = 2048, kUsed = 10;
  const size_t bytes = plane_bytes(type, rows, cols);
  const Pool pool(b.device, b.stream, random_planes(type, rows, cols),
                  n_experts > 0 ? bytes * static_cast<size_t>(n_experts) : pool_bytes);
  const int results = n_experts > 0 ? kTokens * kUsed : kTokens;
  ProductInput x{.floats = nullptr, .stride = cols, .rounded = {}};
  x.rounded.strips = (cols + 63) / 64 * 4;
  const size_t strips = size_t{kTokens} * static_cast<size_t>(x.rounded.strips);
  const Buffer integers = b.device.allocate(16 * strips, "activations"),
               scales = b.device.allocate(4 * strips, "scales"),
               y = b.device.allocate(sizeof(float) * static_cast<size_t>(results) * static_cast<size_t>(rows),
                                     "results");
  b.stream.fill(integers.as(), 1, integers.bytes());
  b.stream.fill(scales.as(), 0x3f, scales.bytes());
  x.rounded.q = integers.as<uint32_t>();
  x.rounded.scale = x.rounded.sum = x.rounded.pair_sum = scales.as<float>();

  TokenTiles tokens;
  tokens.n = kTokens;
  int n_tiles = kTokens / kTileTokens;
  std::vector<ExpertTile> tiles;
  std::vector<int32_t> first_tile, input_row;
  Buffer on_device[3];
  const WaitAtExit wait(b.stream);
  if (n_experts > 0) {
    std::mt19937 random(1);
    for (int e = 0; e <= n_experts; ++e) {
      first_tile.push_back(static_cast<int32_t>(tiles.size()));
      const int first = results / n_experts * e;
      for (int i = 0; e < n_experts && i < results / n_experts; i += kTileTokens)
        tiles.push_back({e, first + i, std::min(kTileTokens, results / n_experts - i)});
    }
    for (int i = 0; i < results; ++i) input_row.push_back(static_cast<int32_t>(random() % kTokens));
    const auto upload = [&](const auto& from, Buffer& to) {
      to = b.device.allocate(from.size() * sizeof(from[0]), "tiles");
      b.stream.copy(to.as(), from.data(), to.bytes());
    };
    upload(tiles, on_device[0]);
    upload(first_tile, on_device[1]);
    upload(input_row, on_device[2]);
    n_tiles = static_cast<int>(tiles.size());
    tokens = {.n = 0,
              .tiles = on_device[0].as<ExpertTile>(),
              .first_tile = on_device[1].as<int32_t>(),
              .first_expert = 0,
              .end_expert = n_experts,
              .input_row = on_device[2].as<int32_t>(),
              .output_row = nullptr,
              .slot_bytes = bytes};
  }
  const Launcher launcher{.stream = b.stream};
  return time_chain(
      b.device, b.stream,
      fmt::format("prefill product {} {} x {}, {}", quant::name(type), rows, cols,
                  n_experts > 0 ? fmt::format("{} experts", n_experts) : fmt::format("{} tokens", kTokens)),
      n_experts > 0 ? bytes * static_cast<size_t>(n_experts) : bytes, [&](size_t i) {
        prefill_product(launcher, device_matrix(type, rows, cols, n_experts > 0 ? pool.data() : pool.at(i)),
                        x, tokens, n_tiles, {y.as<float>(), nullptr, rows}, b.books.as<Codebooks>());
      });
}

/// `predicts`: the next layer's router, too.
TimingLine time_route(Bench& b, bool predicts, size_t pool_bytes) {
  constexpr int kN = 2048, kExperts = 512, kUsed = 10, kRows = kExperts + 1;
  std::vector<std::byte> one(size_t{kRows} * kN * sizeof(float));
  std::mt19937 random(1);
  std::normal_distribution<float> distribution;
  for (size_t i = 0; i < one.size() / sizeof(float); ++i) {
    const float value = distribution(random) * 0.02f;
    std::memcpy(&one[i * sizeof(float)], &value, sizeof(float));
  }
  const Pool pool(b.device, b.stream, one, pool_bytes);
  b.stream.fill(b.zeros.as(), 0, b.zeros.bytes());
  const size_t routers = predicts ? 2 : 1;
  const uint32_t blocks = Route::blocks(kRows) + (predicts ? Route::blocks(kExperts) : 0);
  const std::string name = predicts ? "route 512 experts, with a prediction" : "route 512 experts";
  return time_chain(b.device, b.stream, name, routers * one.size(), [&](size_t i) {
    b.stream.launch<Route>(b.shape({blocks}, Route::dynamic_shared(kN)),
                           {.x = b.ones.as<float>(),
                            .weight = b.ones.as<float>(),
                            .router = reinterpret_cast<const float*>(pool.at(routers * i)),
                            .input = b.out.as<float>(),
                            .rounded = b.out.as() + 65536,
                            .logits = b.more_out.as<float>(),
                            .ids = b.more_out.as<int32_t>() + 4096,
                            .scores = b.more_out.as<float>() + 8192,
                            .slots = nullptr,
                            .table = {},
                            .host = {},
                            .step = nullptr,
                            .tickets = b.zeros.as<uint32_t>(),
                            .next = {{.router = reinterpret_cast<const float*>(pool.at(routers * i + 1)),
                                      .logits = b.more_out.as<float>() + 12288,
                                      .table = {},
                                      .host = {},
                                      .ticket = b.zeros.as<uint32_t>() + 1}},
                            .eps = 1e-6f,
                            .n = kN,
                            .n_experts = kExperts,
                            .n_used = kUsed,
                            .n_rows = kRows});
  });
}

TimingLine time_delta_step(Bench& b, size_t pool_bytes) {
  constexpr int kHeads = 32, kKeyHeads = 16, kDim = 128, kTaps = 4;
  constexpr int kKeyDim = kKeyHeads * kDim, kConvDim = 2 * kKeyDim + kHeads * kDim;
  constexpr size_t kState = size_t{kHeads} * kDim * kDim, kHistory = 2 * size_t{kTaps - 1} * kConvDim;
  const Pool pool(b.device, b.stream, std::vector<std::byte>((kState + kHistory) * sizeof(float)),
                  pool_bytes);
  std::vector<DeltaHead> heads;
  for (int v = 0; v < kHeads; ++v) {
    const int k = v / 2;
    heads.push_back({.k_head = k,
                     .q = k * kDim,
                     .k = kKeyDim + k * kDim,
                     .v = 2 * kKeyDim + v * kDim,
                     .z = kConvDim + v * kDim,
                     .beta = kConvDim + kHeads * kDim + v,
                     .alpha = kConvDim + kHeads * kDim + kHeads + v,
                     .first_of_k_head = v % 2 == 0});
  }
  const Buffer heads_device = b.device.allocate(heads.size() * sizeof(DeltaHead), "heads");
  const WaitAtExit wait(b.stream);
  b.stream.copy(heads_device.as(), heads.data(), heads_device.bytes());
  b.stream.fill(b.zeros.as(), 0, b.zeros.bytes());
  return time_chain(b.device, b.stream, "delta_step 32 heads of 128", 2 * kState * sizeof(float),
                    [&](size_t i) {
                      auto* state = const_cast<float*>(reinterpret_cast<const float*>(pool.at(i)));
                      b.stream.launch<DeltaStep>(b.shape(DeltaStep::grid(kHeads, kDim), 0),
                                                 {.proj = b.ones.as<float>(),
                                                  .heads = heads_device.as<DeltaHead>(),
                                                  .conv = b.ones.as<float>(),
                                                  .dt = b.ones.as<float>(),
                                                  .a = b.zeros.as<float>(),
                                                  .history = state + kState,
                                                  .state = state,
                                                  .weight = b.ones.as<float>(),
                                                  .core = b.out.as<float>(),
                                                  .rounded = b.more_out.as(),
                                                  .squares = b.more_out.as<float>() + 32768,
                                                  .step = b.zeros.as<Step>(),
                                                  .proj_stride = kConvDim + kHeads * kDim + 2 * kHeads,
                                                  .n_tokens = 1,
                                                  .taps = kTaps,
                                                  .conv_dim = kConvDim,
                                                  .key_dim = kKeyDim,
                                                  .dim = kDim,
                                                  .eps = 1e-6f});
                    });
}

/// Attention of the 80B, with F16 keys and values, of a token at `position`: both kernels together.
TimingLine time_attend(Bench& b, int position, size_t pool_bytes) {
  constexpr int kKvHeads = 2, kGroup = 8, kDim = 256, kRopeDims = 64, kHeads = kKvHeads * kGroup;
  constexpr int kQStride = 2 * kDim, kOffset = kHeads * kQStride;  // of k
  using K = Attend<uint16_t>;
  const int capacity = position + 1;
  const int parts = AttendSizes::most_parts(capacity, b.device.info().multiprocessors, kKvHeads);
  const size_t cache = size_t{kKvHeads} * static_cast<size_t>(capacity) * kDim;  // keys, or values
  const Pool pool(b.device, b.stream, std::vector<std::byte>(2 * cache * sizeof(uint16_t)), pool_bytes);
  const size_t n_parts = size_t{kHeads} * static_cast<size_t>(parts);
  const Buffer part_values = b.device.allocate(n_parts * kDim * sizeof(float), "parts"),
               part_sums = b.device.allocate(2 * n_parts * sizeof(float), "parts");
  const Step step{.position = position, .number = 1, .flip = 0};
  const Buffer step_device = b.device.allocate(sizeof step, "the step's record");
  const WaitAtExit wait(b.stream);
  b.stream.copy(step_device.as(), &step, sizeof step);
  return time_chain(
      b.device, b.stream, fmt::format("attend, attend_combine at position {}", position),
      2 * cache * sizeof(uint16_t), [&](size_t i) {
        auto* keys = const_cast<uint16_t*>(reinterpret_cast<const uint16_t*>(pool.at(i)));
        b.stream.launch<K>(b.shape({kKvHeads, static_cast<uint32_t>(parts)}, K::dynamic_shared(kGroup, kDim)),
                           {.proj = b.ones.as<float>(),
                            .q_norm = b.ones.as<float>(),
                            .k_norm = b.ones.as<float>(),
                            .rope = b.ones.as<float>(),
                            .keys = keys,
                            .values = keys + cache,
                            .part_max = part_sums.as<float>(),
                            .part_sum = part_sums.as<float>() + n_parts,
                            .part_values = part_values.as<float>(),
                            .step = step_device.as<Step>(),
                            .q_stride = kQStride,
                            .k_offset = kOffset,
                            .v_offset = kOffset + kKvHeads * kDim,
                            .capacity = capacity,
                            .head_dim = kDim,
                            .rope_dims = kRopeDims,
                            .group = kGroup,
                            .eps = 1e-6f});
        b.stream.launch<AttendCombine>(b.shape({kHeads}, 0), {.part_max = part_sums.as<float>(),
                                                              .part_sum = part_sums.as<float>() + n_parts,
                                                              .part_values = part_values.as<float>(),
                                                              .gate = b.ones.as<float>() + kDim,
                                                              .core = b.out.as<float>(),
                                                              .rounded = b.more_out.as(),
                                                              .step = step_device.as<Step>(),
                                                              .max_parts = parts,
                                                              .gate_head_stride = kQStride,
                                                              .head_dim = kDim});
      });
}

}  // namespace

void time_kernels(Device& device, std::string_view filter,
                  const std::function<void(const TimingLine&)>& report) {
  const auto stream = device.create_stream();
  Bench bench(device, *stream);
  const size_t pool = std::min(kBeyondCaches, device.free_memory() / 4);
  const auto wanted = [&](std::string_view name) { return name.find(filter) != std::string_view::npos; };
  // DeltaNet's input, the output of both mixers, an attention's k or v.
  constexpr struct {
    int rows, cols;
    bool norm;
  } kShapes[] = {{12288, 2048, true}, {2048, 4096, false}, {512, 2048, true}};
  for (const quant::TypeInfo& info : quant::all_types()) {
    if (wanted(fmt::format("project {}", info.name))) {
      for (const auto& [rows, cols, norm] : kShapes)
        report(time_project(bench, info.type, rows, cols, norm, pool));
    }
    if (wanted(fmt::format("prefill product {}", info.name)) && !takes_floats(info.type)) {
      report(time_prefill_product(bench, info.type, 12288, 2048, 0, pool));
      report(time_prefill_product(bench, info.type, 2048, 4096, 0, pool));
      report(time_prefill_product(bench, info.type, 512, 2048, 512, pool));
      report(time_prefill_product(bench, info.type, 2048, 512, 512, pool));
    }
    if (wanted(fmt::format("experts {}", info.name)))
      time_experts(bench, info.type, info.type == quant::Type::IQ1_M ? quant::Type::Q6_K : info.type, pool,
                   report);
  }
  if (wanted("logits")) report(time_project(bench, quant::Type::Q5_K, 151936, 2048, true, pool));
  if (wanted("route")) {
    for (const bool predicts : {false, true}) report(time_route(bench, predicts, pool));
  }
  if (wanted("delta_step")) report(time_delta_step(bench, pool));
  if (wanted("attend")) {
    for (const int position : {255, 4095, 32767}) report(time_attend(bench, position, pool));
  }
}

}  // namespace redlite::gpu
