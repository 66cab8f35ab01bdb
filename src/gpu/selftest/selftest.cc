#include "gpu/selftest/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace redlite::gpu {
namespace {

constexpr size_t kGuard = 256;  ///< bytes behind an output

}  // namespace

Selftest::Selftest(Device& device, uint64_t seed)
    : device_(device), stream_(device.create_stream()), random_(static_cast<uint32_t>(seed)) {
  codebooks_ = upload_codebooks(device, *stream_);
}

std::vector<float> Selftest::normal(size_t n) {
  std::normal_distribution<float> distribution;
  std::vector<float> out(n);
  for (float& value : out) value = distribution(random_) * (random_() % 50 == 0 ? 20.0f : 1.0f);
  return out;
}

std::byte* Selftest::upload_bytes(std::span<const std::byte> bytes) {
  Buffer& buffer = buffers_.emplace_back(device_.allocate(std::max<size_t>(bytes.size(), 1), "a self-test"));
  const WaitAtExit wait(*stream_);  // the caller's bytes may go
  stream_->copy(buffer.as(), bytes.data(), bytes.size());
  stream_->synchronize();
  return buffer.as();
}

std::byte* Selftest::output_bytes(size_t bytes) {
  Buffer& buffer = buffers_.emplace_back(device_.allocate(bytes + kGuard, "a self-test"));
  stream_->fill(buffer.as(), 0xff, bytes + kGuard);
  return buffer.as();
}

void Selftest::failed(const std::string& label, const std::string& what) {
  ++line_.failures;
  if (line_.first_failure.empty()) line_.first_failure = label + ": " + what;
}

void Selftest::compare(const std::string& label, std::span<const float> values, const Expected& expected) {
  const size_t n = expected.values.size();
  RL_CHECK(expected.bounds.size() == n && values.size() == n, "{} bounds, {} values for {}",
           expected.bounds.size(), values.size(), n);
  ++line_.cases;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    if (bits == 0xffffffffu) return failed(label, fmt::format("element {} of {} was not written", i, n));
    const double error = std::fabs(static_cast<double>(values[i]) - expected.values[i]);
    // Also catches NaN on either side.
    if (!(error <= expected.bounds[i])) {
      return failed(label, fmt::format("element {} of {} is {}, expected {} within {}", i, n, values[i],
                                       expected.values[i], expected.bounds[i]));
    }
    if (error > 0) line_.worst = std::max(line_.worst, error / expected.bounds[i]);
  }
}

void Selftest::check(const std::string& label, const float* output, const Expected& expected) {
  const size_t n = expected.values.size();
  const std::vector<std::byte> bytes =
      download(reinterpret_cast<const std::byte*>(output), n * sizeof(float) + kGuard);
  std::vector<float> values(n);
  std::memcpy(values.data(), bytes.data(), n * sizeof(float));
  compare(label, values, expected);
  if (std::any_of(bytes.end() - kGuard, bytes.end(), [](std::byte b) { return b != std::byte{0xff}; })) {
    failed(label, fmt::format("written behind the last of {} elements", n));
  }
}

void Selftest::check_bytes(const std::string& label, const void* output,
                           std::span<const std::byte> expected) {
  ++line_.cases;
  const std::vector<std::byte> bytes =
      download(static_cast<const std::byte*>(output), expected.size() + kGuard);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (bytes[i] != expected[i]) {
      return failed(label, fmt::format("byte {} of {} is {:#04x}, expected {:#04x}", i, expected.size(),
                                       static_cast<unsigned>(bytes[i]), static_cast<unsigned>(expected[i])));
    }
  }
  if (std::any_of(bytes.end() - kGuard, bytes.end(), [](std::byte b) { return b != std::byte{0xff}; })) {
    failed(label, fmt::format("written behind the last of {} bytes", expected.size()));
  }
}

SelftestLine Selftest::run(std::string name, const std::function<void(Selftest&)>& group) {
  line_ = {};
  line_.name = std::move(name);
  try {
    group(*this);
    stream_->synchronize();
  } catch (const Error& e) {
    failed("error", e.what());
  }
  buffers_.clear();
  return line_;
}

int kernel_selftest(Device& device, uint64_t seed, std::string_view filter,
                    const std::function<void(const SelftestLine&)>& report) {
  SelftestGroups groups;
  add_simt_groups(groups);
  add_matrix_groups(groups);
  add_prefill_product_groups(groups);
  add_prefill_groups(groups);
  add_product_groups(groups);
  add_attention_groups(groups);
  add_delta_net_groups(groups);
  add_decode_groups(groups);
  Selftest test(device, seed);
  int failures = 0;
  for (const auto& [name, group] : groups) {
    if (name.find(filter) == std::string::npos) continue;
    const SelftestLine line = test.run(name, group);
    report(line);
    failures += line.failures;
  }
  return failures;
}

}  // namespace redlite::gpu
