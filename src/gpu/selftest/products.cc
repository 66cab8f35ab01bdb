#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "gpu/kernels/experts.h"
#include "gpu/kernels/project.h"
#include "gpu/kernels/step.h"
#include "gpu/selftest/matrix_values.h"
#include "gpu/selftest/selftest.h"

namespace redlite::gpu {
namespace {

using quant::Type;

constexpr float kEps = 1e-6f;

std::vector<double> doubles(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

/// x / sqrt(mean of the squares of n values from `first` on + eps)
double norm_scale(const std::vector<double>& x, size_t first, size_t n) {
  double sum = 0;
  for (size_t i = first; i < first + n; ++i) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(kEps));
}

/// Adds `offsets` to values that the sum is added to in single precision.
void add(Expected& to, const std::vector<float>& offsets) {
  for (size_t i = 0; i < offsets.size(); ++i) {
    to.values[i] += offsets[i];
    to.bounds[i] += (std::fabs(to.values[i]) + std::fabs(offsets[i])) * 0x1p-23;
  }
}

struct Part {
  Type type;
  int rows;
};

/// A projection of two tokens by several matrices, with what it should give.
class ProjectCase {
 public:
  ProjectCase(Selftest& test, std::vector<Part> parts, int cols)
      : test_(test), n_(static_cast<size_t>(cols)) {
    std::vector<DeviceMatrix> matrices;
    for (const Part& part : parts) {
      weights_.push_back(random_matrix(part.type, part.rows, cols, test.random()));
      matrices.push_back(upload(test, part.type, part.rows, cols, weights_.back()));
      rows_ += part.rows;
      label_ += fmt::format("{} {} x {} ", quant::name(part.type), part.rows, cols);
    }
    parts_ = std::move(parts);
    matrices_ = matrices;
    for (int t = 0; t < kTokens; ++t) {
      x_.push_back(test.normal(n_));
      if (n_ >= 64) std::fill_n(x_.back().begin() + 16, 16, 0.0f);  // a strip of zeros
    }
    x_device_ = test.upload(joined(x_));
  }

  void norm() {
    const std::vector<float> weight = test_.normal(n_);
    auto* shown = test_.output<float>(kTokens * n_);
    Expected norms;
    std::vector<std::vector<double>> inputs;
    for (const std::vector<float>& x : x_) {
      const double scale = norm_scale(doubles(x), 0, n_);
      std::vector<double>& input = inputs.emplace_back();
      for (size_t i = 0; i < n_; ++i) input.push_back(x[i] * scale * weight[i]);
      for (const double value : input) {
        norms.values.push_back(value);
        norms.bounds.push_back(std::fabs(value) * 0x1p-20 + 1e-30);
      }
    }
    run("norm",
        {.x = x_device_,
         .n = static_cast<int>(n_),
         .weight = test_.upload(weight),
         .eps = kEps,
         .shown = shown},
        inputs, false, false);
    test_.check(label_ + "norm, shown", shown, norms);
  }

  /// As the kernel before has rounded it; `dim` > 0: to be multiplied by the norms of heads of so many
  /// values.
  void ready(int dim, bool with_y) {
    const int n_squares = 3;
    std::vector<std::byte> bytes;
    std::vector<float> squares;
    std::vector<std::vector<double>> inputs;
    for (const std::vector<float>& x : x_) {
      const std::vector<std::byte> one = rounded_vector(x);
      bytes.insert(bytes.end(), one.begin(), one.end());
      std::vector<double>& input = inputs.emplace_back();
      // What a matrix of floats gets is not rounded.
      input = takes_floats(parts_[0].type) ? doubles(x) : values_of(one, static_cast<int>(n_));
      for (size_t first = 0; dim > 0 && first < n_; first += static_cast<size_t>(dim)) {
        std::vector<double> parts(n_squares, 0);
        for (int i = 0; i < dim; ++i) {
          const double value = 3.0 * x[first + static_cast<size_t>(i)];  // the norm is not of x itself
          parts[static_cast<size_t>(i % n_squares)] += value * value;
        }
        double sum = 0;
        for (const double part : parts) {
          squares.push_back(static_cast<float>(part));
          sum += part;
        }
        const double scale = 1 / std::sqrt(sum / dim + static_cast<double>(kEps));
        for (int i = 0; i < dim; ++i) input[first + static_cast<size_t>(i)] *= scale;
      }
    }
    ProjectInput in{.x = x_device_, .n = static_cast<int>(n_), .eps = kEps, .rounded = test_.upload(bytes)};
    if (dim > 0) {
      in.squares = test_.upload(squares);
      in.dim = dim;
      in.n_squares = n_squares;
    }
    run(dim > 0 ? "heads" : "ready", in, inputs, true, with_y);
  }

  /// The early-out: nothing is written.
  void skipped() {
    auto* y = test_.output<float>(static_cast<size_t>(rows_));
    const std::vector<float> weight = test_.normal(n_);
    launch({.x = x_device_, .n = static_cast<int>(n_), .weight = test_.upload(weight), .eps = kEps}, y,
           nullptr, 1, test_.upload(std::vector<uint32_t>{1}));
    test_.check_bytes(label_ + "skipped", y,
                      std::vector<std::byte>(static_cast<size_t>(rows_) * sizeof(float), std::byte{0xff}));
  }

 private:
  static constexpr int kTokens = 2;

  static std::vector<float> joined(const std::vector<std::vector<float>>& vectors) {
    std::vector<float> out;
    for (const auto& v : vectors) out.insert(out.end(), v.begin(), v.end());
    return out;
  }

  void launch(const ProjectInput& input, float* y, float* residual, int tokens, const uint32_t* skip) {
    const Projection projection = make_projection(matrices_, input.weight != nullptr, 4);
    Project::Params p{.input = input,
                      .parts = {},
                      .n_parts = projection.n_parts,
                      .y = y,
                      .residual = residual,
                      .y_stride = rows_,
                      .codebooks = test_.codebooks(),
                      .layout = projection.layout,
                      .skip = skip};
    std::copy_n(projection.parts, projection.n_parts, p.parts);
    test_.stream().launch<Project>(
        {.grid = {static_cast<uint32_t>(projection.n_blocks), static_cast<uint32_t>(tokens)},
         .threads = kStepThreads,
         .dynamic_shared = projection.layout.bytes},
        p);
  }

  void run(std::string_view how, const ProjectInput& input, const std::vector<std::vector<double>>& inputs,
           bool with_residual, bool with_y) {
    Expected expected;
    for (const std::vector<double>& x : inputs) {
      for (size_t i = 0; i < parts_.size(); ++i) {
        // With a norm the roundings come after it, without one they are the input.
        const Seen seen =
            input.weight != nullptr ? seen_by(parts_[i].type, x, false) : plain(x, input.squares == nullptr);
        const Expected part = product(weights_[i], parts_[i].rows, static_cast<int>(n_), seen);
        expected.values.insert(expected.values.end(), part.values.begin(), part.values.end());
        expected.bounds.insert(expected.bounds.end(), part.bounds.begin(), part.bounds.end());
      }
    }
    const size_t n_out = expected.values.size();
    auto* y = with_y || !with_residual ? test_.output<float>(n_out) : nullptr;
    const std::vector<float> before = test_.normal(n_out);
    auto* residual = with_residual ? test_.copied(before) : nullptr;
    launch(input, y, residual, kTokens, nullptr);
    if (y != nullptr) test_.check(fmt::format("{}{}", label_, how), y, expected);
    if (with_residual) {
      add(expected, before);
      test_.check(fmt::format("{}{}, added", label_, how), residual, expected);
    }
  }

  Selftest& test_;
  size_t n_;
  int rows_ = 0;
  std::string label_;
  std::vector<Part> parts_;
  std::vector<TestMatrix> weights_;
  std::vector<DeviceMatrix> matrices_;
  std::vector<std::vector<float>> x_;
  const float* x_device_ = nullptr;
};

void test_project(Selftest& test, Type type) {
  for (const MatrixShape shape : matrix_shapes(type)) {
    ProjectCase project(test, {{type, shape.rows}}, shape.cols);
    project.norm();
    project.ready(0, shape.rows % 2 == 0);
    if (shape.cols % 32 == 0) project.ready(shape.cols % 128 == 0 && shape.cols > 128 ? 128 : 32, false);
    if (shape.rows == 3) project.skipped();
  }
}

void test_parts(Selftest& test) {
  ProjectCase(test, {{Type::IQ2_XXS, 150}, {Type::Q4_K, 37}, {Type::F32, 9}, {Type::IQ1_M, 1}}, 512).norm();
  ProjectCase(test, {{Type::F16, 5}, {Type::Q8_0, 70}}, 2560).norm();
}

struct ExpertTypes {
  Type gate, up, down;
};
struct ExpertCase {
  ExpertTypes routed, shared;
  int n, ff, shared_ff;  ///< shared_ff 0: there is no shared expert
  int n_used;
};

struct TestExpert {
  TestMatrix gate, up, down;
};

size_t slot_bytes(const ExpertTypes& t, int n, int ff) {
  return plane_bytes(t.gate, ff, n) + plane_bytes(t.up, ff, n) + plane_bytes(t.down, n, ff);
}

ExpertMatrices matrices_in(const ExpertTypes& t, int n, int ff, const std::byte* slot) {
  ExpertMatrices out;
  out.gate = device_matrix(t.gate, ff, n, slot);
  out.up = device_matrix(t.up, ff, n, slot + plane_bytes(t.gate, ff, n));
  out.down = device_matrix(t.down, n, ff, slot + plane_bytes(t.gate, ff, n) + plane_bytes(t.up, ff, n));
  return out;
}

TestExpert random_expert(const ExpertTypes& t, int n, int ff, std::mt19937& random,
                         std::vector<std::byte>& planes) {
  TestExpert out{random_matrix(t.gate, ff, n, random), random_matrix(t.up, ff, n, random),
                 random_matrix(t.down, n, ff, random)};
  const auto append = [&](Type type, int rows, int cols, const TestMatrix& m) {
    std::vector<std::byte> bytes(plane_bytes(type, rows, cols));
    repack(type, rows, cols, m.blocks.data(), bytes.data());
    planes.insert(planes.end(), bytes.begin(), bytes.end());
  };
  append(t.gate, ff, n, out.gate);
  append(t.up, ff, n, out.up);
  append(t.down, n, ff, out.down);
  return out;
}

/// Behind the raised flag nothing is written, and no slot is read: in these there is no memory.
void test_skipped(Selftest& test, const std::string& label, const LayerExperts& layer, int n,
                  int hidden_stride, int ff) {
  const std::vector<int32_t> nowhere(static_cast<size_t>(layer.n_used), 1 << 24);
  const std::vector<uint32_t> raised = {1};
  const int32_t* slots = test.upload(nowhere);
  const uint32_t* skip = test.upload(raised);
  const auto n_all = static_cast<size_t>(layer.n_all()), stride = static_cast<size_t>(hidden_stride);
  const size_t vector_bytes = rounded_bytes(hidden_stride);
  auto* input = test.output<float>(static_cast<size_t>(n));
  auto* rounded = test.output<std::byte>(rounded_bytes(n));
  auto* hidden = test.output<float>(n_all * stride);
  auto* hidden_rounded = test.output<std::byte>(n_all * vector_bytes);
  auto* residual = test.output<float>(static_cast<size_t>(n));
  const ProductLayout gate_up = ExpertsGateUp::layout(layer, n),
                      down = ExpertsDown::layout(layer, hidden_stride);
  test.stream().launch<ExpertsGateUp>({.grid = {ExpertsGateUp::blocks(ff), static_cast<uint32_t>(n_all)},
                                       .threads = kStepThreads,
                                       .dynamic_shared = gate_up.bytes},
                                      {.experts = layer,
                                       .input = input,
                                       .rounded = rounded,
                                       .slots = slots,
                                       .hidden = hidden,
                                       .hidden_rounded = hidden_rounded,
                                       .codebooks = test.codebooks(),
                                       .hidden_stride = hidden_stride,
                                       .n = n,
                                       .layout = gate_up,
                                       .skip = skip});
  test.stream().launch<ExpertsDown>(
      {.grid = {ExpertsDown::blocks(n)}, .threads = kStepThreads, .dynamic_shared = down.bytes},
      {.experts = layer,
       .hidden = hidden,
       .hidden_rounded = hidden_rounded,
       .slots = slots,
       .scores = test.output<float>(n_all),
       .residual = residual,
       .shown = nullptr,
       .codebooks = test.codebooks(),
       .scale = 1,
       .hidden_stride = hidden_stride,
       .n = n,
       .layout = down,
       .skip = skip});
  const auto untouched = [](size_t bytes) { return std::vector<std::byte>(bytes, std::byte{0xff}); };
  test.check_bytes(label + ", skipped, hidden", hidden, untouched(n_all * stride * sizeof(float)));
  test.check_bytes(label + ", skipped, rounded", hidden_rounded, untouched(n_all * vector_bytes));
  test.check_bytes(label + ", skipped, residual", residual,
                   untouched(static_cast<size_t>(n) * sizeof(float)));
}

void test_experts(Selftest& test, const ExpertCase& c) {
  constexpr int kSlots = 7, kTokens = 2;
  const auto n = static_cast<size_t>(c.n);
  const bool has_shared = c.shared_ff > 0;
  const int hidden_stride = (std::max(c.ff, c.shared_ff) + 63) / 64 * 64;
  const std::string label =
      fmt::format("{} {} {}, {}, {} x {}", quant::name(c.routed.gate), quant::name(c.routed.up),
                  quant::name(c.routed.down), has_shared ? quant::name(c.shared.down) : "-", c.n, c.ff);
  std::vector<std::byte> planes, shared_planes;
  std::vector<TestExpert> experts;
  for (int i = 0; i < kSlots; ++i)
    experts.push_back(random_expert(c.routed, c.n, c.ff, test.random(), planes));
  if (has_shared) experts.push_back(random_expert(c.shared, c.n, c.shared_ff, test.random(), shared_planes));

  LayerExperts layer{};
  layer.slot = matrices_in(c.routed, c.n, c.ff, test.upload(planes));
  layer.slot_bytes = slot_bytes(c.routed, c.n, c.ff);
  if (has_shared) layer.shared = matrices_in(c.shared, c.n, c.shared_ff, test.upload(shared_planes));
  layer.n_used = c.n_used;
  layer.has_shared = has_shared;
  const auto n_all = static_cast<size_t>(layer.n_all());

  std::vector<int32_t> slots;
  std::vector<float> input, scores, residual = test.normal(kTokens * n);
  std::vector<std::byte> rounded_input;
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < c.n_used; ++i) slots.push_back((3 * t + 2 * i + 1) % kSlots);
    const std::vector<float> x = test.normal(n);
    input.insert(input.end(), x.begin(), x.end());
    const std::vector<std::byte> bytes = rounded_vector(x);
    rounded_input.insert(rounded_input.end(), bytes.begin(), bytes.end());
    std::vector<float> of_token = test.normal(n_all);
    std::sort(of_token.begin(), of_token.begin() + c.n_used, std::greater<>());
    scores.insert(scores.end(), of_token.begin(), of_token.end());
  }
  constexpr float kScale = 1.5f;
  const auto share_of = [&](size_t t, size_t i) {
    const auto score = [&](size_t j) { return static_cast<double>(scores[t * n_all + j]); };
    if (i == static_cast<size_t>(c.n_used)) return 1 / (1 + std::exp(-score(i)));
    double sum = 0;
    for (size_t j = 0; j < static_cast<size_t>(c.n_used); ++j) sum += std::exp(score(j) - score(i));
    return static_cast<double>(kScale) / sum;
  };
  const auto expert = [&](size_t t, size_t i) -> const TestExpert& {
    return experts[i < static_cast<size_t>(c.n_used)
                       ? static_cast<size_t>(slots[t * static_cast<size_t>(c.n_used) + i])
                       : kSlots];
  };
  const auto stride = static_cast<size_t>(hidden_stride);
  auto* hidden = test.output<float>(kTokens * n_all * stride);
  const size_t vector_bytes = rounded_bytes(hidden_stride);
  auto* hidden_rounded = test.output<std::byte>(kTokens * n_all * vector_bytes);
  const int32_t* slots_device = test.upload(slots);
  const ProductLayout gate_up = ExpertsGateUp::layout(layer, c.n);
  const auto tokens = static_cast<uint32_t>(kTokens);
  test.stream().launch<ExpertsGateUp>(
      {.grid = {ExpertsGateUp::blocks(std::max(c.ff, c.shared_ff)), static_cast<uint32_t>(n_all), tokens},
       .threads = kStepThreads,
       .dynamic_shared = gate_up.bytes},
      {.experts = layer,
       .input = test.upload(input),
       .rounded = test.upload(rounded_input),
       .slots = slots_device,
       .hidden = hidden,
       .hidden_rounded = hidden_rounded,
       .codebooks = test.codebooks(),
       .hidden_stride = hidden_stride,
       .n = c.n,
       .layout = gate_up});
  const std::vector<float> values = test.download<float>(hidden, kTokens * n_all * stride);
  const std::vector<std::byte> bytes =
      test.download<std::byte>(hidden_rounded, kTokens * n_all * vector_bytes);

  Expected sums;
  for (size_t t = 0; t < kTokens; ++t) {
    const std::vector<double> x(input.begin() + static_cast<std::ptrdiff_t>(t * n),
                                input.begin() + static_cast<std::ptrdiff_t>((t + 1) * n));
    Expected total{std::vector<double>(n), std::vector<double>(n)};
    for (size_t i = 0; i < n_all; ++i) {
      const bool routed = i < static_cast<size_t>(c.n_used);
      const ExpertTypes& types = routed ? c.routed : c.shared;
      const int ff = routed ? c.ff : c.shared_ff;
      const TestExpert& e = expert(t, i);
      const std::string which = fmt::format("{}, token {}, expert {}", label, t, i);
      const Expected gate = product(e.gate, ff, c.n, seen_by(types.gate, x, true));
      const Expected up = product(e.up, ff, c.n, seen_by(types.up, x, true));
      Expected expected;
      for (size_t r = 0; r < static_cast<size_t>(ff); ++r) {
        const double g = gate.values[r], u = up.values[r], silu = g / (1 + std::exp(-g));
        expected.values.push_back(silu * u);
        // SiLU's slope is at most 1.1.
        expected.bounds.push_back(1.1 * gate.bounds[r] * (std::fabs(u) + up.bounds[r]) +
                                  up.bounds[r] * std::fabs(silu) + std::fabs(silu * u) * 0x1p-20 + 1e-30);
      }
      const size_t at = t * n_all + i;
      test.compare(which + ", hidden", {&values[at * stride], static_cast<size_t>(ff)}, expected);
      // Rounded from the very floats.
      const std::vector<float> own(&values[at * stride], &values[at * stride] + ff);
      const std::vector<double> expected_rounded = values_of(rounded_vector(own), ff);
      std::vector<double> ours =
          values_of(std::span(bytes).subspan(at * vector_bytes, vector_bytes), hidden_stride);
      ours.resize(static_cast<size_t>(ff));
      Expected same{expected_rounded, {}};
      for (const double value : expected_rounded) same.bounds.push_back(std::fabs(value) * 0x1p-24);
      test.compare(which + ", rounded", std::vector<float>(ours.begin(), ours.end()), same);

      const Expected down =
          product(e.down, c.n, ff, plain(takes_floats(types.down) ? doubles(own) : ours, true));
      const double share = share_of(t, i);
      for (size_t r = 0; r < n; ++r) {
        total.values[r] += share * down.values[r];
        total.bounds[r] += share * (down.bounds[r] + std::fabs(down.values[r]) * 0x1p-19);
      }
    }
    sums.values.insert(sums.values.end(), total.values.begin(), total.values.end());
    sums.bounds.insert(sums.bounds.end(), total.bounds.begin(), total.bounds.end());
  }
  auto* out = test.copied(residual);
  auto* shown = test.output<float>(kTokens * n);
  const ProductLayout down = ExpertsDown::layout(layer, hidden_stride);
  test.stream().launch<ExpertsDown>(
      {.grid = {ExpertsDown::blocks(c.n), tokens}, .threads = kStepThreads, .dynamic_shared = down.bytes},
      {.experts = layer,
       .hidden = hidden,
       .hidden_rounded = hidden_rounded,
       .slots = slots_device,
       .scores = test.upload(scores),
       .residual = out,
       .shown = shown,
       .codebooks = test.codebooks(),
       .scale = kScale,
       .hidden_stride = hidden_stride,
       .n = c.n,
       .layout = down});
  test.check(label + ", down", shown, sums);
  add(sums, residual);
  test.check(label + ", down, added", out, sums);
  test_skipped(test, label, layer, c.n, hidden_stride, std::max(c.ff, c.shared_ff));
}

void test_experts_of(Selftest& test, Type type) {
  const auto block = static_cast<int>(quant::info(type).block_values);
  const ExpertTypes all{type, type, type};
  test_experts(test, {.routed = all, .shared = all, .n = 256, .ff = 256, .shared_ff = 512, .n_used = 3});
  if (block <= 32)
    test_experts(test, {.routed = all, .shared = {}, .n = 96, .ff = 32, .shared_ff = 0, .n_used = 5});
}

void test_mixed_experts(Selftest& test) {
  const ExpertTypes published{Type::IQ1_M, Type::IQ1_M, Type::IQ1_M},
      ends{Type::IQ2_XS, Type::IQ2_XXS, Type::IQ2_XS};
  const ExpertTypes shared{Type::Q6_K, Type::Q6_K, Type::Q6_K}, floats{Type::F32, Type::BF16, Type::F16};
  test_experts(test,
               {.routed = published, .shared = shared, .n = 512, .ff = 512, .shared_ff = 256, .n_used = 10});
  test_experts(test, {.routed = ends, .shared = floats, .n = 256, .ff = 256, .shared_ff = 40, .n_used = 4});
  test_experts(test, {.routed = floats, .shared = ends, .n = 256, .ff = 24, .shared_ff = 256, .n_used = 2});
  test_experts(test, {.routed = shared, .shared = ends, .n = 2304, .ff = 256, .shared_ff = 256, .n_used = 2});
}

}  // namespace

void add_product_groups(SelftestGroups& groups) {
  for (const quant::TypeInfo& info : quant::all_types()) {
    groups.emplace_back(fmt::format("project {}", info.name),
                        [type = info.type](Selftest& test) { test_project(test, type); });
  }
  groups.emplace_back("project, matrices of several types", test_parts);
  for (const quant::TypeInfo& info : quant::all_types()) {
    groups.emplace_back(fmt::format("experts {}", info.name),
                        [type = info.type](Selftest& test) { test_experts_of(test, type); });
  }
  groups.emplace_back("experts of several types", test_mixed_experts);
}

}  // namespace redlite::gpu
