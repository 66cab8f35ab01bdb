#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "experts/cache.h"
#include "experts/pool.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "gpu/kernels/copy_experts.h"
#include "gpu/launcher.h"
#include "gpu/registered_files.h"
#include "model/model.h"

namespace redlite::gpu {

/// Where experts come from that are not all on the device.
struct ExpertSupply {
  const RegisteredFiles* files = nullptr;  ///< all of them lie in host memory; nullptr:
  experts::ExpertCache* cache = nullptr;   ///< ... this reads them
  const HostBuffer* memory = nullptr;      ///< ... to here
  /// Who is in the slots that the host manages; nullptr: the device manages them. Nothing may change there
  /// while a chunk is computed.
  const experts::ExpertPool* slots = nullptr;
  /// How long the device may take for what it was given.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
};

/// Brings the experts that a chunk of tokens needs to the device, layer after layer and in groups of
/// consecutive experts: the copy engine fetches them from host memory as the file has them, up to two groups
/// ahead of the computation, and LoadExperts makes planes of a group just before it is used. In front of
/// that, the reads of what is not in host memory run another group ahead. What is in slots is copied from
/// there. Of slots that the device manages, those that are still empty keep what passes; no other slot
/// changes.
class ExpertStream {
 public:
  /// Takes device memory for the largest layer's groups. For chunks that select at most `selections` experts
  /// in a layer.
  ExpertStream(Device& device, const model::Model& model, const DeviceModel& weights, int selections);
  /// When the experts have their place.
  void open(const ExpertSupply& supply);

  size_t bytes() const { return raw_.bytes() + planes_.bytes(); }  ///< of device memory
  int n_groups() const { return n_groups_; }                       ///< of a layer
  int group_experts() const { return group_experts_; }             ///< ... the last one may have fewer
  uint64_t bytes_copied() const { return bytes_copied_; }          ///< from host memory, by all chunks

  // A chunk: begin(); each layer's groups in order; finish(), or abandon().

  /// With `all`, every layer's experts are brought and start now; otherwise those that are chosen. What
  /// `stream` has so far is done when it returns, if the device manages the slots.
  void begin(Stream& stream, bool all);
  /// Of this layer only the experts ids[n] are needed (in device memory, behind what `stream` has so far).
  void choose(Stream& stream, int layer, const int32_t* ids, int n);
  /// Starts what can be started, and does not wait for reads; for the device only where host memory is short.
  void ahead();
  /// Lets the stream wait for a group and put it into planes. The matrices of its first expert; nullopt: none
  /// of it is needed. Throws Error when an expert cannot be read.
  std::optional<ExpertMatrices> bring(const Launcher& launcher, int layer, int group);
  void finish();
  /// Forgets what is under way. What was launched is done.
  void abandon() noexcept;

 private:
  static constexpr int kGroups = 4, kRing = 2;

  /// How a group's experts lie in its place, as the file has them: matrix m of number i at at[m] + i *
  /// stride[m].
  struct Layout {
    size_t at[3], stride[3];
    bool own[3];  ///< a range of its own; false: it lies within another one (fused in the file)
    size_t bytes;
  };
  /// Experts of a group that one lease holds, on their way to the device.
  struct Part {
    int number;
    std::vector<int32_t> ids;
    experts::ExpertCache::Lease lease;
    bool last = false;  ///< of its group
    size_t copied = 0;  ///< those that copies were started for

    bool done() const { return copied == ids.size(); }
  };

  // `number` counts the groups of all layers.
  int layer_of(int number) const { return number / n_groups_; }
  int first_of(int number) const { return number % n_groups_ * group_experts_; }
  std::byte* place(int number) const { return raw_.as() + raw_bytes_ * static_cast<size_t>(number % kRing); }
  Layout layout(int layer) const;
  void look_up_slots(Stream& stream);
  int32_t* slots_of(int layer) const { return slots_.host<int32_t>() + layer * n_experts_; }
  /// Of the layer's experts [first, end) that are needed, those that are in slots, or those that are not.
  std::vector<int32_t> needed(int layer, int first, int end, bool in_slots) const;
  /// The same of a group.
  std::vector<int32_t> needed(int number, bool in_slots) const;
  std::vector<CopyExperts::Copy> to_keep(int number) const;
  void decide();

  void open_place(int number);
  void copy_from_host(void* to, const void* from, size_t bytes);
  void copy_expert(int number, int32_t id, const model::Model::Expert& from);
  void copy_from_files(int number);
  bool read_more();
  bool room_for_lease(int layer);
  void copy_arrived(Part& part, bool wait);
  void wait_for_reads(int number);

  Device& device_;
  const model::Model& model_;
  const DeviceModel& weights_;
  int n_experts_, group_experts_, n_groups_;
  size_t raw_bytes_ = 0;  ///< of a group
  Buffer raw_;            ///< kRing groups as the file has them
  Buffer planes_;         ///< one group, as slots
  HostBuffer host_ids_;   ///< int32_t, what a layer's tokens selected
  HostBuffer slots_;      ///< int32_t [n_layers][n_experts], as the chunk began: among its layer's, -1: none
  ExpertSupply supply_;
  std::unique_ptr<Stream> copies_;
  std::unique_ptr<Event> selected_;
  std::unique_ptr<Event> filled_[kRing], used_[kRing];
  uint64_t bytes_copied_ = 0;

  // Of the running chunk.
  bool all_ = false;
  int n_chosen_ = 0;             ///< ids on their way to the host; 0: none
  std::vector<int32_t> chosen_;  ///< of the layer, rising; unless all are needed
  int end_ = 0;                  ///< groups before this one are known to be needed, or not
  int requested_ = 0;            ///< the next group to start
  size_t begun_ = 0;             ///< ... its first experts have been, where a cache reads them
  int opened_ = 0;               ///< groups before this one may overwrite their places
  int brought_ = 0;              ///< the next group to be put into planes
  int keeping_ = -1, keep_ = 0;  ///< of this layer so many more experts may stay in the cache
  std::deque<Part> parts_;
};

}  // namespace redlite::gpu
