#include "gpu/expert_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "gpu/kernels/load_experts.h"

namespace redlite::gpu {

using model::Matrix;
using model::Model;

namespace {

constexpr size_t kRawAlignment = 256;

size_t product(auto... factors) {
  return (size_t{1} * ... * static_cast<size_t>(factors));
}

}  // namespace

ExpertStream::ExpertStream(Device& device, const Model& model, const DeviceModel& weights, int selections)
    : device_(device),
      model_(model),
      weights_(weights),
      n_experts_(model.config().n_experts),
      group_experts_((n_experts_ + kGroups - 1) / kGroups),
      n_groups_((n_experts_ + group_experts_ - 1) / group_experts_) {
  size_t planes_bytes = 0;
  for (int l = 0; l < model.config().n_layers; ++l) {
    raw_bytes_ = std::max(raw_bytes_, layout(l).bytes);
    // Slots that the host manages are whole pages.
    planes_bytes = std::max<size_t>(
        planes_bytes, experts::align_up(weights.layer(l).experts.slot_bytes) * product(group_experts_));
  }
  raw_ = device.allocate(kRing * raw_bytes_, "experts on their way through a chunk");
  planes_ = device.allocate(planes_bytes, "experts on their way through a chunk");
  host_ids_ = device.allocate_host(product(selections, sizeof(int32_t)), "selected experts");
  slots_ = device.allocate_host(product(model.config().n_layers, n_experts_, sizeof(int32_t)),
                                "the experts' slots");
}

void ExpertStream::open(const ExpertSupply& supply) {
  RL_CHECK(supply.files != nullptr || (supply.cache != nullptr && supply.memory != nullptr));
  supply_ = supply;
  copies_ = device_.create_stream();
  selected_ = device_.create_event();
  for (int i = 0; i < kRing; ++i) {
    filled_[i] = device_.create_event();
    used_[i] = device_.create_event();
  }
}

ExpertStream::Layout ExpertStream::layout(int l) const {
  const Model::Expert first = model_.mapped_expert(l, 0);
  const model::ExpertLayer& layer = model_.experts()[static_cast<size_t>(l)];
  const std::byte* const at[3] = {first.gate.data, first.up.data, first.down.data};
  const model::ExpertTensor* const tensors[3] = {&layer.gate, &layer.up, &layer.down};
  Layout out{};
  for (int m = 0; m < 3; ++m) {
    out.stride[m] = tensors[m]->expert_stride;
    out.own[m] = true;
    for (int other = 0; other < m; ++other) {
      if (at[m] < at[other] || at[m] >= at[other] + tensors[other]->expert_stride) continue;
      out.at[m] = out.at[other] + static_cast<size_t>(at[m] - at[other]);
      out.own[m] = false;
    }
    if (!out.own[m]) continue;
    out.at[m] = out.bytes;
    out.bytes +=
        (out.stride[m] * product(group_experts_) + kRawAlignment - 1) / kRawAlignment * kRawAlignment;
  }
  return out;
}

/// Who is in which slot: nothing but this stream changes it before the chunk is done.
void ExpertStream::look_up_slots(Stream& stream) {
  if (supply_.slots == nullptr) {
    stream.copy(slots_.host(), weights_.slot_of(), slots_.bytes());
    stream.synchronize(supply_.patience);
    return;
  }
  for (int l = 0; l < model_.config().n_layers; ++l) {
    for (int32_t id = 0; id < n_experts_; ++id) {
      const int32_t slot = supply_.slots->slot_of({l, id});
      slots_of(l)[id] = slot < 0 ? -1 : supply_.slots->number_in_class(slot);
    }
  }
}

std::vector<int32_t> ExpertStream::needed(int layer, int first, int end, bool in_slots) const {
  std::vector<int32_t> ids;
  if (all_) {
    for (int32_t id = first; id < end; ++id) ids.push_back(id);
  } else {
    ids.assign(std::ranges::lower_bound(chosen_, first), std::ranges::lower_bound(chosen_, end));
  }
  std::erase_if(ids, [&](int32_t id) { return (slots_of(layer)[id] >= 0) != in_slots; });
  return ids;
}

std::vector<int32_t> ExpertStream::needed(int number, bool in_slots) const {
  const int first = first_of(number);
  return needed(layer_of(number), first, std::min(first + group_experts_, n_experts_), in_slots);
}

/// What of a group goes to slots of the device's that are still empty, from a place among the group's to a
/// slot. Each group gives the same part of what it lacks, so that the next chunk's groups stay of one size,
/// and its first ones, so that what is still missing is of one piece.
std::vector<CopyExperts::Copy> ExpertStream::to_keep(int number) const {
  if (supply_.slots != nullptr) return {};
  const int layer = layer_of(number), first = first_of(number);
  std::vector<bool> taken(product(weights_.layer(layer).table.n_slots));
  for (int32_t id = 0; id < n_experts_; ++id)
    if (const int32_t slot = slots_of(layer)[id]; slot >= 0) taken[product(slot)] = true;
  std::vector<int32_t> empty;
  for (size_t slot = 0; slot < taken.size(); ++slot)
    if (!taken[slot]) empty.push_back(static_cast<int32_t>(slot));

  const size_t before = needed(layer, 0, first, false).size(), here = needed(number, false).size();
  const size_t all = needed(layer, 0, n_experts_, false).size(), kept = std::min(empty.size(), all);
  std::vector<CopyExperts::Copy> copies;
  if (kept == 0) return copies;
  const std::vector<int32_t> ids = needed(number, false);
  const size_t begin = kept * before / all, end = kept * (before + here) / all;
  for (size_t i = begin; i < end; ++i) copies.push_back({ids[i - begin] - first, empty[i]});
  return copies;
}

void ExpertStream::begin(Stream& stream, bool all) {
  look_up_slots(stream);
  all_ = all;
  end_ = all ? model_.config().n_layers * n_groups_ : 0;
  requested_ = opened_ = brought_ = 0;
  begun_ = 0;
  keeping_ = -1;
  ahead();
}

void ExpertStream::choose(Stream& stream, int layer, const int32_t* ids, int n) {
  RL_CHECK(!all_ && brought_ == layer * n_groups_ && requested_ == brought_);
  RL_CHECK(product(n, sizeof(int32_t)) <= host_ids_.bytes(), "{} selections", n);
  stream.record(*selected_);
  copies_->wait(*selected_);
  copies_->copy(host_ids_.host(), ids, product(n, sizeof(int32_t)));
  n_chosen_ = n;
  end_ = (layer + 1) * n_groups_;
}

/// Waits for what was chosen.
void ExpertStream::decide() {
  if (n_chosen_ == 0) return;
  copies_->synchronize(supply_.patience);
  const int32_t* ids = host_ids_.host<int32_t>();
  chosen_.assign(ids, ids + std::exchange(n_chosen_, 0));
  std::sort(chosen_.begin(), chosen_.end());
  chosen_.erase(std::unique(chosen_.begin(), chosen_.end()), chosen_.end());
}

void ExpertStream::ahead() {
  decide();
  if (supply_.files != nullptr) {
    while (requested_ < std::min(end_, brought_ + kRing)) copy_from_files(requested_++);
    return;
  }
  while (read_more()) {
  }
  for (Part& part : parts_) {
    copy_arrived(part, false);
    if (!part.done()) break;
  }
}

std::optional<ExpertMatrices> ExpertStream::bring(const Launcher& launcher, int layer, int group) {
  const int number = layer * n_groups_ + group, first = first_of(number);
  RL_CHECK(number == brought_ && number < end_, "group {} of layer {}", group, layer);
  decide();
  const std::vector<int32_t> from_host = needed(number, false), from_slots = needed(number, true);
  if (supply_.files == nullptr) wait_for_reads(number);
  const LayerExperts& experts = weights_.layer(layer).experts;
  LoadExperts::Params p = weights_.load_params(layer);
  std::byte* const slots = std::exchange(p.slots, planes_.as());
  const Dim3 grid = {4 * static_cast<uint32_t>(device_.info().multiprocessors)};

  Stream& stream = launcher.stream;
  const auto copy = [&](const std::vector<CopyExperts::Copy>& copies, CopyExperts::Params params) {
    params.slot_bytes = experts.slot_bytes;
    for (size_t begin = 0; begin < copies.size(); begin += CopyExperts::kMostCopies) {
      const size_t n = std::min<size_t>(CopyExperts::kMostCopies, copies.size() - begin);
      params.n_copies = static_cast<int32_t>(n);
      std::copy_n(&copies[begin], n, params.copies);
      launcher.launch<CopyExperts>({.grid = grid, .threads = kStepThreads}, params);
    }
  };
  std::vector<CopyExperts::Copy> copies;
  for (const int32_t id : from_slots) copies.push_back({slots_of(layer)[id], id - first});
  copy(copies, {.from = slots, .to = planes_.as()});
  if (!from_host.empty()) {
    stream.wait(*filled_[number % kRing]);
    const Layout raw = layout(layer);
    for (size_t begin = 0; begin < from_host.size(); begin += LoadExperts::kMostLoads) {
      const size_t n = std::min<size_t>(LoadExperts::kMostLoads, from_host.size() - begin);
      p.n_loads = static_cast<int32_t>(n);
      for (size_t i = 0; i < n; ++i) {
        p.loads[i].slot = from_host[begin + i] - first;
        for (int m = 0; m < 3; ++m)
          p.loads[i].from[m] = place(number) + raw.at[m] + raw.stride[m] * product(p.loads[i].slot);
      }
      launcher.launch<LoadExperts>({.grid = grid, .threads = kStepThreads}, p);
    }
    stream.record(*used_[number % kRing]);
    // A slot and its entry in one launch: there is none without the other.
    const SlotTable& table = weights_.layer(layer).table;
    copy(to_keep(number), {.from = planes_.as(),
                           .to = slots,
                           .slot_of = table.slot_of,
                           .expert_of = table.expert_of,
                           .first_expert = first});
  }
  ++brought_;
  if (from_host.empty() && from_slots.empty()) return std::nullopt;
  ExpertMatrices m = experts.slot;
  for (DeviceMatrix* matrix : {&m.gate, &m.up, &m.down})
    matrix->planes.data = planes_.as() + (matrix->planes.data - slots);
  return m;
}

void ExpertStream::finish() {
  copies_->synchronize(supply_.patience);
  parts_.clear();
}

void ExpertStream::abandon() noexcept {
  try {
    copies_->synchronize(supply_.patience);
  } catch (const Error&) {  // the first error is the one that tells what happened
  }
  parts_.clear();
  n_chosen_ = 0;
}

/// Copies to a group's place begin behind the use of the group that was there.
void ExpertStream::open_place(int number) {
  if (number < opened_) return;
  copies_->wait(*used_[number % kRing]);
  opened_ = number + 1;
}

void ExpertStream::copy_from_host(void* to, const void* from, size_t bytes) {
  copies_->copy(to, from, bytes);
  bytes_copied_ += bytes;
}

/// From host memory that a cache reads into.
void ExpertStream::copy_expert(int number, int32_t id, const Model::Expert& from) {
  const Layout raw = layout(layer_of(number));
  const Matrix* const matrices[3] = {&from.gate, &from.up, &from.down};
  for (int m = 0; m < 3; ++m) {
    copy_from_host(place(number) + raw.at[m] + raw.stride[m] * product(id - first_of(number)),
                   supply_.memory->on_device() + (matrices[m]->data - supply_.memory->host()),
                   matrices[m]->bytes());
  }
}

/// Each run of neighbours is three copies. A run does not bridge an expert that is not needed: a matrix of an
/// 80B has 0.2 MB and more, 4 us of the bus, and another copy costs the copy engine less; the host's time for
/// it passes beside the bus's.
void ExpertStream::copy_from_files(int number) {
  const int layer = layer_of(number), first = first_of(number);
  const Layout raw = layout(layer);
  const std::vector<int32_t> ids = needed(number, false);
  open_place(number);
  for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && ids[end] - ids[begin] == static_cast<int32_t>(end - begin)) ++end;
    const Model::Expert from = model_.mapped_expert(layer, ids[begin]);
    const Matrix* const matrices[3] = {&from.gate, &from.up, &from.down};
    for (int m = 0; m < 3; ++m) {
      if (!raw.own[m]) continue;
      copy_from_host(place(number) + raw.at[m] + raw.stride[m] * product(ids[begin] - first),
                     supply_.files->on_device(matrices[m]->data), raw.stride[m] * (end - begin));
    }
  }
  copies_->record(*filled_[number % kRing]);
}

/// Pins the next experts in host memory, which starts the reads of those that are missing. False: there are
/// none, or there is no room yet.
bool ExpertStream::read_more() {
  std::vector<int32_t> ids;
  for (;; ++requested_, begun_ = 0) {
    if (requested_ >= end_) return false;
    ids = needed(requested_, false);
    if (begun_ < ids.size()) break;
  }
  const int layer = layer_of(requested_);
  if (!room_for_lease(layer)) return false;
  experts::ExpertCache& cache = *supply_.cache;
  if (std::exchange(keeping_, layer) != layer) {
    // Of what the chunk reads so much may stay that the cache keeps the same part of every layer; the rest
    // passes through few slots.
    int wanted = 0, resident = 0;
    for (int32_t id = 0; id < n_experts_; ++id) {
      if (!all_ && !std::ranges::binary_search(chosen_, id)) continue;
      ++wanted;
      resident += cache.resident(layer, id) ? 1 : 0;
    }
    keep_ = cache.worth_keeping(layer, wanted) - resident;
  }
  const size_t n = std::min(ids.size() - begun_, static_cast<size_t>(cache.max_lease(layer)));
  ids = {ids.begin() + static_cast<std::ptrdiff_t>(begun_),
         ids.begin() + static_cast<std::ptrdiff_t>(begun_ + n)};
  std::vector<int> passing;
  for (size_t i = 0; i < n; ++i) {
    if (!cache.resident(layer, ids[i]) && keep_-- <= 0) passing.push_back(static_cast<int>(i));
  }
  begun_ += n;
  const bool last = begun_ == needed(requested_, false).size();
  experts::ExpertCache::Lease lease = cache.acquire(layer, ids);
  for (const int i : passing) lease.retire(i);
  parts_.push_back({requested_, std::move(ids), std::move(lease), last});
  return true;
}

/// Gives back what has been copied if that is needed for another lease.
bool ExpertStream::room_for_lease(int layer) {
  const size_t most = supply_.cache->two_leases_fit(layer) ? 2 : 1;
  if (parts_.size() < most) return true;
  if (!parts_.front().done()) return false;
  copies_->synchronize(supply_.patience);
  while (!parts_.empty() && parts_.front().done()) parts_.pop_front();
  return parts_.size() < most;
}

/// Starts the copies of those that are in host memory; with `wait`, of all.
void ExpertStream::copy_arrived(Part& part, bool wait) {
  if (part.number >= brought_ + kRing || part.done()) return;
  open_place(part.number);
  while (!part.done()) {
    const std::optional<int> index = wait ? part.lease.next() : part.lease.try_next();
    if (!index) return;
    copy_expert(part.number, part.ids[static_cast<size_t>(*index)], part.lease.expert(*index));
    ++part.copied;
  }
  if (part.last) copies_->record(*filled_[part.number % kRing]);
}

/// Starts the copies of a whole group.
void ExpertStream::wait_for_reads(int number) {
  for (;;) {
    while (read_more()) {
    }
    const auto next = std::ranges::find_if(parts_, [](const Part& part) { return !part.done(); });
    if (next == parts_.end() || next->number > number) return;
    copy_arrived(*next, true);
  }
}

}  // namespace redlite::gpu
