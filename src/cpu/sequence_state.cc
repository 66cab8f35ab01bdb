#include "cpu/sequence_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/aligned.h"
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
      bytes_(bytes_needed(config, type, capacity)),
      bytes_per_position_(bytes_needed(config, type, 1)) {
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
  return plane_rows(plane) + static_cast<size_t>(position) * head_dim_ * value_bytes(type_);
}

std::byte* KvCache::plane_rows(size_t plane) const {
  return data_ + plane * capacity_ * head_dim_ * value_bytes(type_);
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

void KvCache::save(int n, std::span<std::byte> out) const {
  const size_t rows = value_bytes(type_) * head_dim_ * n;  // of a plane
  RL_CHECK(out.size() == bytes_per_position_ * n);
  for (size_t plane = 0; plane * rows < out.size(); ++plane)
    std::memcpy(out.data() + plane * rows, plane_rows(plane), rows);
}

void KvCache::load(int n, std::span<const std::byte> bytes) {
  const size_t rows = value_bytes(type_) * head_dim_ * n;
  RL_CHECK(bytes.size() == bytes_per_position_ * n);
  for (size_t plane = 0; plane * rows < bytes.size(); ++plane)
    std::memcpy(plane_rows(plane), bytes.data() + plane * rows, rows);
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

namespace {

struct CpuMark final : model::Mark {
  std::span<const std::byte> bytes() const override { return std::as_bytes(delta.span()); }

  int position = 0;
  AlignedBuffer<float> delta;
};

const CpuMark& checked(const model::Mark& mark) {
  const auto* ours = dynamic_cast<const CpuMark*>(&mark);
  RL_CHECK(ours != nullptr, "a mark of another runner's");
  return *ours;
}

}  // namespace

CpuSequence::CpuSequence(const model::Config& config, KvType type, int capacity)
    : kv(config, type, capacity), delta(config), capacity_(capacity) {}

void CpuSequence::reset() {
  position_ = 0;
  delta.reset();
}

std::unique_ptr<model::Mark> CpuSequence::mark() const {
  auto mark = std::make_unique<CpuMark>();
  mark->position = position_;
  mark->delta = AlignedBuffer<float>(delta.values().size());
  std::ranges::copy(delta.values(), mark->delta.data());
  return mark;
}

void CpuSequence::rewind(const model::Mark& mark) {
  const CpuMark& place = checked(mark);
  RL_CHECK(place.position <= position_ && place.delta.size() == delta.values().size(), "position {}",
           position_);
  position_ = place.position;
  std::ranges::copy(place.delta.span(), delta.values().begin());
}

std::optional<model::Sequence::StateBytes> CpuSequence::state_bytes() const {
  return StateBytes{delta.values().size_bytes(), kv.bytes_per_position()};
}

std::unique_ptr<model::Mark> CpuSequence::load_mark(int position, std::span<const std::byte> bytes) const {
  RL_CHECK(bytes.size() == delta.values().size_bytes() && position >= 0 && position <= capacity_);
  auto mark = std::make_unique<CpuMark>();
  mark->position = position;
  mark->delta = AlignedBuffer<float>(delta.values().size());
  if (!bytes.empty()) std::memcpy(mark->delta.data(), bytes.data(), bytes.size());
  return mark;
}

void CpuSequence::save_positions(int n, std::span<std::byte> out) const {
  RL_CHECK(n >= 0 && n <= capacity_, "{} positions of {}", n, capacity_);
  kv.save(n, out);
}

void CpuSequence::load_positions(int n, std::span<const std::byte> bytes) {
  RL_CHECK(n >= 0 && n <= capacity_, "{} positions of {}", n, capacity_);
  kv.load(n, bytes);
  position_ = n;
}

}  // namespace redlite::cpu
