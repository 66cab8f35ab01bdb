#include "session/fingerprint.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"

namespace redlite::session {
namespace {

class WideHash {
 public:
  WideHash() { XXH3_128bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void add(std::string_view text) {
    add_number(text.size());
    add(std::as_bytes(std::span(text)));
  }
  template <typename T>
  void add_number(T value) {
    add(std::as_bytes(std::span(&value, 1)));
  }
  std::array<uint64_t, 2> value() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.low64, hash.high64};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

/// Read, not mapped: a page that is touched here would be a small one from then on.
void add_part(WideHash& hash, const File& file, uint64_t offset, uint64_t n) {
  std::vector<std::byte> bytes(std::min(n, file.size() - std::min(offset, file.size())));
  file.read_exactly(offset, bytes);
  hash.add(bytes);
}

void add_file(WideHash& hash, const gguf::File& gguf, uint32_t shard) {
  constexpr size_t kSamples = 16;
  constexpr uint64_t kSampleBytes = 4096;
  const File& file = gguf.shards()[shard].file();
  struct stat st {};
  if (::fstat(file.descriptor(), &st) != 0) fail("{}: its time of change cannot be read", file.path());
  hash.add_number(file.size());
  hash.add_number(st.st_mtim.tv_sec);
  hash.add_number(st.st_mtim.tv_nsec);
  std::vector<uint64_t> offsets;
  for (const gguf::TensorInfo& tensor : gguf.tensors()) {
    if (tensor.shard == shard) offsets.push_back(tensor.offset);
  }
  std::ranges::sort(offsets);
  add_part(hash, file, 0, offsets.empty() ? file.size() : offsets[0]);
  for (size_t i = 0; i < std::min(kSamples, offsets.size()); ++i)
    add_part(hash, file, offsets[i * offsets.size() / std::min(kSamples, offsets.size())], kSampleBytes);
}

/// exp() and its like may differ between machines in the last bit, and the states with them.
void add_mathematics(WideHash& hash) {
  volatile float start = 0.37f;  // not to be computed by the compiler
  for (float x = start; x < 12; x *= 1.618f) {
    hash.add_number(std::exp(-x));
    hash.add_number(std::log1p(x));
    hash.add_number(std::cos(static_cast<double>(x) * 1000));
    hash.add_number(std::sin(static_cast<double>(x) * 1000));
    hash.add_number(std::pow(1e6, static_cast<double>(-x)));
  }
}

}  // namespace

std::array<uint64_t, 2> fingerprint(const model::Model& model, std::string_view more) {
  WideHash hash;
  hash.add(more);
  add_mathematics(hash);
  for (uint32_t shard = 0; shard < model.file().shards().size(); ++shard) add_file(hash, model.file(), shard);
  return hash.value();
}

}  // namespace redlite::session
