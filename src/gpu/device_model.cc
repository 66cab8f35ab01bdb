#include "gpu/device_model.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "gpu/kernels/repack.h"
#include "quant/decode.h"

namespace redlite::gpu {

using model::LayerKind;
using model::Matrix;

namespace {

// Bytes that wait on the device for being repacked.
constexpr size_t kStaging = size_t{32} << 20;

/// Where the parts of each V head lie in a token's projection: q | k | v | z | beta | alpha, or the older
/// [q k v z] of each K head, then [beta alpha] of each.
std::vector<DeltaHead> delta_heads(const model::Config& c, const model::DeltaNetWeights& w) {
  std::vector<DeltaHead> heads(static_cast<size_t>(c.n_v_heads));
  std::vector<bool> seen(static_cast<size_t>(c.n_k_heads));
  const int dim = c.state_dim, per_k = c.n_v_heads / c.n_k_heads;
  const int gates = c.conv_dim() + c.value_dim();
  for (int v = 0; v < c.n_v_heads; ++v) {
    DeltaHead& head = heads[static_cast<size_t>(v)];
    const int k = c.k_head_of(v);
    const int group = v / per_k, in_group = v % per_k;  // in whose part of the older layouts it lies
    head.k_head = k;
    if (w.qkv) {
      head.q = k * dim;
      head.k = c.key_dim() + k * dim;
      head.v = 2 * c.key_dim() + v * dim;
      head.z = c.conv_dim() + v * dim;
    } else {
      head.q = k * (2 + 2 * per_k) * dim;
      head.k = head.q + dim;
      head.v = group * (2 + 2 * per_k) * dim + (2 + in_group) * dim;
      head.z = head.v + per_k * dim;
    }
    head.beta = gates + (w.beta ? v : 2 * group * per_k + in_group);
    head.alpha = gates + (w.beta ? c.n_v_heads + v : (2 * group + 1) * per_k + in_group);
    head.first_of_k_head = seen[static_cast<size_t>(k)] ? 0 : 1;
    seen[static_cast<size_t>(k)] = true;
  }
  return heads;
}

/// Bytes of an expert's three matrices, one behind the other.
size_t slot_bytes(const model::Model& model, int layer) {
  const model::Model::Expert e = model.mapped_expert(layer, 0);
  size_t bytes = 0;
  for (const Matrix* m : {&e.gate, &e.up, &e.down}) bytes += plane_bytes(m->type, m->rows, m->cols);
  return bytes;
}

/// The matrices of the expert in the slot that begins at `slot`.
ExpertMatrices matrices_in(const model::Model& model, int layer, const std::byte* slot) {
  const model::Model::Expert e = model.mapped_expert(layer, 0);
  const auto next = [&](const Matrix& m) {
    const DeviceMatrix out = device_matrix(m.type, m.rows, m.cols, slot);
    slot += plane_bytes(m.type, m.rows, m.cols);
    return out;
  };
  ExpertMatrices out;
  out.gate = next(e.gate);
  out.up = next(e.up);
  out.down = next(e.down);
  return out;
}

std::vector<float> transposed(std::span<const float> conv, int channels) {
  std::vector<float> out(conv.size());
  const size_t n = static_cast<size_t>(channels), taps = conv.size() / n;
  for (size_t channel = 0; channel < n; ++channel)
    for (size_t i = 0; i < taps; ++i) out[i * n + channel] = conv[channel * taps + i];
  return out;
}

}  // namespace

/// Brings weights to the device, one after another through a staging buffer.
class DeviceModel::Upload {
 public:
  Upload(Device& device, Stream& stream)
      : device_(device), stream_(stream), staging_(device.allocate(kStaging, "staging for the weights")) {}

  template <typename T>
  const T* values(Arena& arena, std::span<const T> from) {
    T* to = arena.take<T>(from.size());
    const WaitAtExit wait(stream_);  // `from` need not live longer
    stream_.copy(to, from.data(), from.size_bytes());
    stream_.synchronize();
    return to;
  }
  const float* values(Arena& arena, const model::Vector& from) {
    return values(arena, std::span<const float>(from));
  }

  /// To planes at `to`.
  void matrix(const Matrix& from, std::byte* to) {
    const PlaneFormat& format = plane_format(from.type);
    const PlaneMatrix planes = plane_matrix(from.type, from.rows, from.cols, to);
    const size_t block_bytes = static_cast<size_t>(format.block_bytes), blocks = from.bytes() / block_bytes;
    // A multiple of 16 blocks, so that each piece begins at a multiple of 16 bytes in every plane.
    const size_t piece = kStaging / (16 * block_bytes) * 16;
    for (size_t first = 0; first < blocks; first += piece) {
      const size_t n = std::min(piece, blocks - first);
      stream_.copy(staging_.as(), from.data + first * block_bytes, n * block_bytes);
      Repack::Params p{.format = format,
                       .from = staging_.as(),
                       .to = to,
                       .plane = {},
                       .blocks = static_cast<uint32_t>(n),
                       .skip = nullptr};
      for (int i = 0; i < format.n_planes; ++i) p.plane[i] = planes.plane[i] + first * format.planes[i].bytes;
      const uint32_t tiles = p.blocks / static_cast<uint32_t>(Repack::tile_blocks(format)) + 1;
      stream_.launch<Repack>(
          {.grid = {std::min(tiles, 4 * static_cast<uint32_t>(device_.info().multiprocessors))},
           .threads = kStepThreads},
          p);
    }
  }

  DeviceMatrix matrix(Arena& arena, const Matrix& from) {
    std::byte* to = arena.take(plane_bytes(from.type, from.rows, from.cols));
    matrix(from, to);
    return device_matrix(from.type, from.rows, from.cols, to);
  }

  Projection projection(Arena& arena, std::initializer_list<const Matrix*> matrices, bool norm) {
    std::vector<DeviceMatrix> uploaded;
    for (const Matrix* m : matrices)
      if (*m) uploaded.push_back(matrix(arena, *m));
    return make_projection(uploaded, norm, device_.info().multiprocessors);
  }

  LayerExperts experts(Arena& dense, const model::Model& model, int layer) {
    const model::Config& c = model.config();
    const model::FfnWeights& w = model.weights().layers[static_cast<size_t>(layer)].ffn;
    LayerExperts out{};
    out.n_used = c.n_experts_used;
    out.has_shared = c.shared_ff > 0;
    if (out.has_shared) {
      out.shared = {matrix(dense, w.shared_gate), matrix(dense, w.shared_up), matrix(dense, w.shared_down)};
    }
    out.slot_bytes = slot_bytes(model, layer);
    return out;
  }

  /// All experts of a layer, one after another, to slots.
  void fill(const model::Model& model, int layer, std::byte* slots) {
    const size_t bytes = slot_bytes(model, layer);
    for (int e = 0; e < model.config().n_experts; ++e)
      expert(model, layer, e, slots + bytes * static_cast<size_t>(e));
  }

 private:
  void expert(const model::Model& model, int layer, int number, std::byte* slot) {
    const model::Model::Expert expert = model.mapped_expert(layer, number);
    for (const Matrix* m : {&expert.gate, &expert.up, &expert.down}) {
      matrix(*m, slot);
      slot += plane_bytes(m->type, m->rows, m->cols);
    }
  }

  Device& device_;
  Stream& stream_;
  Buffer staging_;
};

std::string_view residency_name(Residency residency) {
  return residency == Residency::full ? "full" : residency == Residency::device ? "device" : "host";
}

experts::SizeClasses device_slot_classes(const model::Model& model) {
  experts::SizeClasses sizes;
  std::map<size_t, int> class_of_size;
  for (int l = 0; l < model.config().n_layers; ++l) {
    const size_t bytes = experts::align_up(slot_bytes(model, l));
    const auto [at, is_new] = class_of_size.try_emplace(bytes, sizes.classes.size());
    if (is_new) {
      sizes.classes.push_back({bytes, 0});
      sizes.triplet_bytes.push_back(bytes);
    }
    sizes.class_of_layer.push_back(at->second);
    sizes.classes[static_cast<size_t>(at->second)].n_slots += model.config().n_experts;
  }
  return sizes;
}

uint64_t DeviceModel::expert_bytes(const model::Model& model) {
  uint64_t bytes = 0;
  for (int l = 0; l < model.config().n_layers; ++l)
    bytes += slot_bytes(model, l) * static_cast<uint64_t>(model.config().n_experts);
  return bytes;
}

uint64_t DeviceModel::least_cache_bytes(const model::Model& model) {
  return expert_bytes(model) / static_cast<uint64_t>(model.config().n_experts) *
         static_cast<uint64_t>(model.config().n_experts_used);
}

void DeviceModel::place_counters() {
  const size_t n = kCounters * layers_.size() * static_cast<size_t>(model_.config().n_experts);
  counters_ = dense_.take<uint32_t>(n);
  stream_.fill(counters_, 0, n * sizeof(uint32_t));
}

uint32_t* DeviceModel::counter(Counter which, size_t layer) const {
  return counters_ + (which * layers_.size() + layer) * static_cast<size_t>(model_.config().n_experts);
}

std::vector<experts::ExpertUse> DeviceModel::uses(Stream& stream) const {
  RL_CHECK(counters_ != nullptr);
  const size_t n_experts = static_cast<size_t>(model_.config().n_experts), n = layers_.size() * n_experts;
  std::vector<uint32_t> counters(kCounters * n);
  std::vector<int32_t> slot_of(n, 0);
  const WaitAtExit wait(stream);
  stream.copy(counters.data(), counters_, counters.size() * sizeof(uint32_t));
  if (residency_ == Residency::device) stream.copy(slot_of.data(), this->slot_of(), n * sizeof(int32_t));
  stream.synchronize();
  std::vector<experts::ExpertUse> out(n);
  for (size_t i = 0; i < n; ++i) {
    out[i] = {.hits = counters[kHits * n + i],
              .misses = counters[kMisses * n + i],
              .prefetches = counters[kPrefetches * n + i],
              .resident = slot_of[i] >= 0};
  }
  return out;
}

SlotStatistics DeviceModel::statistics(Stream& stream) const {
  SlotStatistics out;
  if (residency_ != Residency::device) return out;
  const std::vector<experts::ExpertUse> all = uses(stream);
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t layer = i / static_cast<size_t>(model_.config().n_experts);
    out.hits += all[i].hits;
    out.misses += all[i].misses;
    out.prefetched += all[i].prefetches;
    out.bytes_copied += (uint64_t{all[i].misses} + all[i].prefetches) * layers_[layer].experts.slot_bytes;
  }
  return out;
}

DeviceModel::DeviceModel(const model::Model& model, Device& device, Stream& stream)
    : model_(model),
      device_(device),
      stream_(stream),
      codebooks_(upload_codebooks(device, stream)),
      dense_(device, "the dense weights"),
      experts_(device, "the experts", 0) {
  const model::Config& c = model.config();
  const model::Weights& w = model.weights();
  Upload upload(device, stream);
  for (int l = 0; l < c.n_layers; ++l) {
    const model::LayerWeights& from = w.layers[static_cast<size_t>(l)];
    DeviceLayer& to = layers_.emplace_back();
    to.attn_norm = upload.values(dense_, from.attn_norm);
    to.ffn_norm = upload.values(dense_, from.ffn_norm);
    if (c.layers[static_cast<size_t>(l)] == LayerKind::Attention) {
      const model::AttentionWeights& a = from.attention;
      to.attention = {.qkv = upload.projection(dense_, {&a.q, &a.k, &a.v}, true),
                      .output = upload.projection(dense_, {&a.output}, false),
                      .q_norm = upload.values(dense_, a.q_norm),
                      .k_norm = upload.values(dense_, a.k_norm)};
    } else {
      const model::DeltaNetWeights& d = from.delta;
      to.delta = {.in = upload.projection(dense_, {&d.qkvz, &d.qkv, &d.z, &d.ba, &d.beta, &d.alpha}, true),
                  .output = upload.projection(dense_, {&d.output}, false),
                  .heads = upload.values(dense_, std::span<const DeltaHead>(delta_heads(c, d))),
                  .conv = upload.values(dense_, transposed(d.conv, c.conv_dim())),
                  .dt = upload.values(dense_, d.dt),
                  .a = upload.values(dense_, d.a),
                  .norm = upload.values(dense_, d.norm)};
    }
    // The router, and the shared expert's gate behind it, as F32.
    std::vector<float> router;
    for (const Matrix* m : {&from.ffn.router, &from.ffn.shared_gate_inp}) {
      if (!*m) continue;
      const size_t n = static_cast<size_t>(m->rows) * static_cast<size_t>(m->cols);
      router.resize(router.size() + n);
      quant::decode(m->type, m->data, &*(router.end() - static_cast<std::ptrdiff_t>(n)), n);
    }
    to.router = upload.values(dense_, router);
    to.experts = upload.experts(dense_, model, l);
  }
  output_norm_ = upload.values(dense_, w.output_norm);
  output_ = upload.projection(dense_, {&w.output}, true);
  stream.synchronize();
}

void DeviceModel::place_all() {
  residency_ = Residency::full;
  place_counters();
  Upload upload(device_, stream_);
  for (size_t l = 0; l < layers_.size(); ++l) {
    LayerExperts& experts = layers_[l].experts;
    std::byte* slots = experts_.take(experts.slot_bytes * static_cast<size_t>(model_.config().n_experts));
    upload.fill(model_, static_cast<int>(l), slots);
    experts.slot = matrices_in(model_, static_cast<int>(l), slots);
    layers_[l].table.hits = counter(kHits, l);
  }
  stream_.synchronize();
}

void DeviceModel::place_cache(uint64_t cache_bytes) {
  const model::Config& c = model_.config();
  const size_t n_experts = static_cast<size_t>(c.n_experts), n_used = static_cast<size_t>(c.n_experts_used);
  residency_ = Residency::device;
  // The same part of every layer's experts.
  const double part = static_cast<double>(cache_bytes) / static_cast<double>(expert_bytes(model_));
  const size_t n_slots = std::min(n_experts, static_cast<size_t>(part * static_cast<double>(n_experts)));
  if (n_slots < n_used) {
    fail("an expert cache of {} MiB on the GPU is too small; the least for this model is --cache-mib {}",
         cache_bytes >> 20, (least_cache_bytes(model_) >> 20) + 1);
  }
  files_.emplace(device_, experts::expert_files(model_));
  place_counters();
  // One piece, which the host reads at once.
  int32_t* const slot_of = dense_.take<int32_t>(layers_.size() * n_experts);
  for (size_t l = 0; l < layers_.size(); ++l) {
    DeviceLayer& layer = layers_[l];
    const int number = static_cast<int>(l);
    layer.experts.slot = matrices_in(model_, number, experts_.take(layer.experts.slot_bytes * n_slots));
    const model::Model::Expert first = model_.mapped_expert(number, 0);
    const model::ExpertLayer& from = model_.experts()[l];
    layer.source = {{files_->on_device(first.gate.data), files_->on_device(first.up.data),
                     files_->on_device(first.down.data)},
                    {from.gate.expert_stride, from.up.expert_stride, from.down.expert_stride}};
    SlotTable& table = layer.table;
    table.n_slots = static_cast<int32_t>(n_slots);
    table.slot_of = slot_of + l * n_experts;
    table.expert_of = dense_.take<int32_t>(n_slots);
    table.last_used = dense_.take<uint32_t>(n_slots);
    table.tick = dense_.take<uint32_t>(1);
    table.n_copies = dense_.take<uint32_t>(1);
    table.copies = dense_.take<SlotCopy>(n_used);
    table.hits = counter(kHits, l);
    table.misses = counter(kMisses, l);
    SlotTable& ahead = layer.ahead;
    ahead = table;
    ahead.n_copies = dense_.take<uint32_t>(1);
    ahead.copies = dense_.take<SlotCopy>(n_used);
    ahead.hits = nullptr;
    ahead.misses = counter(kPrefetches, l);
    // What is predicted has the latest tick but one when the layer's own router gives slots away: of so many
    // slots it gives away none that is still being filled. With fewer, a wrong prediction would take the
    // place of what is needed.
    prefetching_ = n_slots >= 2 * n_used;
    stream_.fill(table.slot_of, 0xff, n_experts * sizeof(int32_t));
    stream_.fill(table.expert_of, 0xff, n_slots * sizeof(int32_t));
    stream_.fill(table.last_used, 0, n_slots * sizeof(uint32_t));
    stream_.fill(table.tick, 0, sizeof(uint32_t));
  }
  stream_.synchronize();
}

void DeviceModel::place_slots(const experts::ExpertPool& pool) {
  residency_ = Residency::host;
  const experts::SizeClasses sizes = device_slot_classes(model_);
  std::vector<std::byte*> slots(sizes.classes.size());
  for (size_t l = 0; l < layers_.size(); ++l) {
    const int number = static_cast<int>(l);
    const auto slot_class = static_cast<size_t>(pool.class_of(number));
    LayerExperts& experts = layers_[l].experts;
    experts.slot_bytes = sizes.classes[slot_class].slot_bytes;
    if (slots[slot_class] == nullptr)
      slots[slot_class] = experts_.take(experts.slot_bytes * static_cast<size_t>(pool.n_slots(number)));
    experts.slot = matrices_in(model_, number, slots[slot_class]);
  }
}

LoadExperts::Params DeviceModel::load_params(int l) const {
  const DeviceLayer& layer = layers_[static_cast<size_t>(l)];
  LoadExperts::Params p{};
  const DeviceMatrix* matrices[3] = {&layer.experts.slot.gate, &layer.experts.slot.up,
                                     &layer.experts.slot.down};
  p.slots = const_cast<std::byte*>(matrices[0]->planes.data);
  p.slot_bytes = layer.experts.slot_bytes;
  for (int m = 0; m < 3; ++m) {
    const PlaneMatrix& planes = matrices[m]->planes;
    const PlaneFormat& format = plane_format(matrices[m]->type);
    p.matrices[m].format = format;
    for (int i = 0; i < format.n_planes; ++i)
      p.matrices[m].plane[i] = planes.plane[i] + static_cast<uint64_t>(planes.data - p.slots);
    p.matrices[m].blocks =
        static_cast<uint32_t>(static_cast<size_t>(planes.rows) * static_cast<size_t>(planes.cols) /
                              static_cast<size_t>(format.block_values));
  }
  return p;
}

LoadExperts::Params DeviceModel::load_params(int l, const SlotTable& table) const {
  LoadExperts::Params p = load_params(l);
  p.source = layer(l).source;
  p.copies = table.copies;
  p.n_copies = table.n_copies;
  return p;
}

}  // namespace redlite::gpu
