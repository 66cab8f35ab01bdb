#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gpu/codebooks.h"
#include "gpu/device.h"

/// The kernels' self-test: every kernel with fresh random inputs against plain double-precision mathematics,
/// on whichever device it is given. Outputs are filled with a pattern first and followed by a guard, so that
/// an element that was not written, or was written behind the end, is found.
namespace redlite::gpu {

/// What came of one group of cases ("project Q4_K").
struct SelftestLine {
  std::string name;
  int cases = 0;
  int failures = 0;
  double worst = 0;           ///< largest error as a share of what its rounding allows; above 1 is a failure
  std::string first_failure;  ///< which case, which element, what was expected; empty if none
};

/// Values in double precision, and for each how far a right result may be off.
struct Expected {
  std::vector<double> values;
  std::vector<double> bounds;
};

/// What a group of cases has at hand.
class Selftest {
 public:
  Selftest(Device& device, uint64_t seed);

  Device& device() { return device_; }
  Stream& stream() { return *stream_; }
  std::mt19937& random() { return random_; }
  const Codebooks* codebooks() const { return codebooks_.as<Codebooks>(); }

  /// Standard normal values, one in 50 of them 20 times as large, as activations of real models are.
  std::vector<float> normal(size_t n);

  /// A copy of host values on the device, which lives until the group ends.
  template <typename T>
  T* upload(std::span<const T> values) {
    return reinterpret_cast<T*>(upload_bytes(std::as_bytes(values)));
  }
  template <typename T>
  T* upload(const std::vector<T>& values) {
    return upload(std::span<const T>(values));
  }
  /// Room for n values filled with 0xff, with a guard behind it that check() looks at.
  template <typename T>
  T* output(size_t n) {
    return reinterpret_cast<T*>(output_bytes(n * sizeof(T)));
  }

  /// Compares an output() with what is expected: no NaN, nothing unwritten, everything within its bound.
  void check(const std::string& label, const float* output, const Expected& expected);
  /// The same for bytes that must be equal.
  void check_bytes(const std::string& label, const void* output, std::span<const std::byte> expected);
  /// Compares values that the host has; NaN is a failure here, too.
  void compare(const std::string& label, std::span<const float> values, const Expected& expected);

  /// An output() that begins as these values.
  template <typename T>
  T* copied(const std::vector<T>& values) {
    T* to = output<T>(values.size());
    const WaitAtExit wait(*stream_);  // the caller's values may go
    stream_->copy(to, values.data(), values.size() * sizeof(T));
    stream_->synchronize();
    return to;
  }

  template <typename T>
  std::vector<T> download(const T* from, size_t n) {
    std::vector<T> out(n);
    const WaitAtExit wait(*stream_);
    stream_->copy(out.data(), from, n * sizeof(T));
    stream_->synchronize();
    return out;
  }

  /// Runs a group, prints nothing, keeps the line; an Error inside it is a failure of the group.
  SelftestLine run(std::string name, const std::function<void(Selftest&)>& group);

 private:
  std::byte* upload_bytes(std::span<const std::byte> bytes);
  std::byte* output_bytes(size_t bytes);
  void failed(const std::string& label, const std::string& what);

  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::mt19937 random_;
  Buffer codebooks_;
  std::vector<Buffer> buffers_;
  SelftestLine line_;
};

/// All groups whose name contains `filter`, in order; `report` gets each line as it is done. The number of
/// failures.
int kernel_selftest(Device& device, uint64_t seed, std::string_view filter,
                    const std::function<void(const SelftestLine&)>& report);

// The groups, by the file they are in: name and what to run.
using SelftestGroups = std::vector<std::pair<std::string, std::function<void(Selftest&)>>>;
void add_simt_groups(SelftestGroups& groups);
void add_matrix_groups(SelftestGroups& groups);
void add_prefill_groups(SelftestGroups& groups);
void add_product_groups(SelftestGroups& groups);
void add_prefill_product_groups(SelftestGroups& groups);
void add_attention_groups(SelftestGroups& groups);
void add_delta_net_groups(SelftestGroups& groups);
void add_decode_groups(SelftestGroups& groups);

}  // namespace redlite::gpu
