#include "cpu/sequence_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/huge_pages.h"

namespace redlite::cpu {
namespace {

uint64_t count(const model::Config& config, model::LayerKind kind) {
  return static_cast<uint64_t>(std::count(config.layers.begin(), config.layers.end(), kind));
}

size_t value_bytes(KvType type) {
  return type == KvType::F16 ? sizeof(uint16_t) : sizeof(float);
}

}  // namespace

KvCache::KvCache(const model::Config& config, KvType type, int capacity)
    : type_(type),
      capacity_(capacity),
      n_heads_(config.n_kv_heads),
      head_dim_(config.head_dim),
      bytes_(bytes_needed(config, type, capacity)) {
  if (bytes_ == 0) return;
  void* mapping =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    fail("cannot reserve {} MiB for keys and values of {} positions ({}); use a smaller context",
         bytes_ >> 20, capacity, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(mapping);
  advise_huge_pages(data_, bytes_);
}

KvCache::~KvCache() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

uint64_t KvCache::bytes_needed(const model::Config& config, KvType type, int capacity) {
  return count(config, model::LayerKind::Attention) * 2 * static_cast<uint64_t>(config.n_kv_heads) *
         static_cast<uint64_t>(config.head_dim) * static_cast<uint64_t>(capacity) * value_bytes(type);
}

std::byte* KvCache::row(int index, int head, int which, int position) const {
  const size_t plane = (static_cast<size_t>(index) * n_heads_ + head) * 2 + which;
  return data_ + (plane * capacity_ + position) * head_dim_ * value_bytes(type_);
}

void KvCache::store(int index, int head, int position, const float* k, const float* v) {
  for (const int which : {0, 1}) {
    const float* from = which == 0 ? k : v;
    std::byte* to = row(index, head, which, position);
    if (type_ == KvType::F32) {
      std::memcpy(to, from, sizeof(float) * head_dim_);
    } else {
      std::transform(from, from + head_dim_, reinterpret_cast<uint16_t*>(to), f32_to_f16);
    }
  }
}

DeltaState::DeltaState(const model::Config& config)
    : taps_before_(std::max(config.conv_kernel - 1, 0)),
      conv_dim_(static_cast<size_t>(config.conv_dim())),
      history_size_(static_cast<size_t>(taps_before_) * conv_dim_),
      matrix_size_(static_cast<size_t>(config.state_dim) * config.state_dim),
      layer_size_(history_size_ + matrix_size_ * config.n_v_heads),
      values_(layer_size_ * count(config, model::LayerKind::DeltaNet), "DeltaNet states") {}

uint64_t DeltaState::bytes_needed(const model::Config& config) {
  const uint64_t history = static_cast<uint64_t>(std::max(config.conv_kernel - 1, 0)) * config.conv_dim();
  const uint64_t matrices = static_cast<uint64_t>(config.n_v_heads) * config.state_dim * config.state_dim;
  return count(config, model::LayerKind::DeltaNet) * (history + matrices) * sizeof(float);
}

void DeltaState::reset() {
  std::ranges::fill(values_.span(), 0.0f);
}

}  // namespace redlite::cpu
