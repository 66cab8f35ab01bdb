#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "experts/cache.h"
#include "experts/pool.h"
#include "experts/prefetch.h"
#include "gpu/kernels/slots.h"
#include "gpu/lookahead.h"

namespace redlite::gpu {

/// An expert to bring into a slot.
struct SlotLoad {
  experts::ExpertKey key;
  int32_t slot = -1;            ///< number in its class
  model::Model::Expert expert;  ///< in host memory
};

/// What the walk needs of the GPU. The token's work is cut into segments: segment s has the experts of layer
/// s - 1 (the first one: the embedding) and then layer s up to and with its router (the last one: the
/// output). Calls return at once; what is submitted runs in order.
class HostGpu {
 public:
  virtual ~HostGpu() = default;
  /// Submits segments [first, last). With `predict`, their routers also tell what the next layers will
  /// probably select.
  virtual void submit(int first, int last, bool predict) = 0;
  /// What a layer's router said in this token; nullptr: nothing yet. Throws Error when the GPU has failed, or
  /// not answered for too long.
  virtual const RouteRecord* routed(int layer) = 0;
  /// The same for the experts that layer `layer` was predicted to select, by the layer `distance` before it.
  virtual const RouteRecord* predicted(int layer, int distance) = 0;
  /// Fills slots, behind what was submitted.
  virtual void load(int layer, std::span<const SlotLoad> loads) = 0;
  /// Fills slots, then lets the token that stopped at this layer's router go on: these slots have its
  /// experts.
  virtual void resume(int layer, std::span<const SlotLoad> loads, std::span<const int32_t> slots) = 0;
  /// Fills slots beside what was submitted. Not again before beside_done().
  virtual void load_beside(int layer, std::span<const SlotLoad> loads) = 0;
  virtual bool beside_done() = 0;
  /// What is submitted from now on runs after load_beside().
  virtual void wait_for_beside() = 0;
};

struct HostWalkStatistics {
  // Selections of experts: each is one of three.
  uint64_t hits = 0;    ///< there when the GPU looked
  uint64_t late = 0;    ///< on the way to the slot, or arrived since the GPU had looked
  uint64_t misses = 0;  ///< brought while the GPU waited
  // Loads ahead of time.
  uint64_t prefetched = 0;
  uint64_t prefetch_useful = 0;   ///< ... selected before they were given away
  uint64_t prefetch_refused = 0;  ///< not begun: the slot to give away was in flight
  // Decisions.
  uint64_t tokens = 0;
  uint64_t windows = 0;         ///< times that the CPU submitted work and waited for a router
  uint64_t stops = 0;           ///< routers that raised the early-out flag
  uint64_t skipped_layers = 0;  ///< submitted behind such a router, in vain
};

/// How a token is decoded when the host manages the slots: which layers are submitted ahead, what is loaded
/// into which slot, and when. All decisions, no device.
///
/// The rules, which together keep every kernel from reading a slot that is being filled:
/// - Only the host writes the table. An entry is published after the slot's load, in the order of the stream
///   or seen to be done, and taken back before the slot is given away.
/// - While layers are in flight (submitted, and their router has not been heard), a slot with an expert of
///   such a layer is not given away, for the GPU may have found it already.
/// - Where a router raised the flag nothing behind it is in flight: every kernel there returns at once.
/// - A layer's selected slots stay pinned until the next layer's router has spoken: its experts are done
/// then.
///   Their generations, as the GPU found them in the table, are compared when the router is heard and again
///   when the pins go.
class HostWalk {
 public:
  struct Sizes {
    int n_layers, n_experts, n_used;
  };
  /// `table`: [n_layers][n_experts], zeros. The references must live as long. So many layers before one its
  /// experts are predicted (0: there is no prefetch).
  HostWalk(const Sizes& sizes, experts::ExpertPool& pool, experts::ExpertCache& source, uint64_t* table,
           Lookahead lookahead, int predicted_layers);

  /// Submits a whole token, through to its output, with at most `most` layers ahead. Throws Error when an
  /// expert cannot be read or the GPU fails; abandon() must follow.
  void token(HostGpu& gpu, int most);
  /// The token's work is done.
  void finish();
  /// Between tokens, when all loads beside are done: until the next one no slot changes and no lease is held.
  void pause();
  /// After an error: forgets what was under way. Nothing may run on the GPU any more.
  void abandon();

  void set_lookahead(const Lookahead& lookahead) { lookahead_ = lookahead; }

  const HostWalkStatistics& statistics() const { return statistics_; }
  /// What became of each expert, [n_layers][n_experts]; those that came late count as misses.
  std::vector<experts::ExpertUse> uses() const;
  const Lookahead& lookahead() const { return lookahead_; }
  bool prefetching() const { return !plans_.empty(); }

 private:
  using Lease = experts::ExpertCache::Lease;

  void settle(HostGpu& gpu, int layer, const RouteRecord& record);
  void bring(HostGpu& gpu, int layer, const experts::Plan& plan, std::span<const int> missing);
  void release_held();
  // Prefetch of the layer whose router is waited for.
  void pump(HostGpu& gpu, int layer);
  void begin_prefetch(int layer);
  void start_copies(HostGpu& gpu, int layer);
  void end_copies();
  /// Takes up what the router in front of `layer` predicted, as far as it has spoken; false: nothing new.
  bool hear_predictions(HostGpu& gpu, int layer);
  /// What is read while the disk would be idle, of `layer` and those behind it.
  void read_ahead_from(int layer);

  size_t index(experts::ExpertKey key) const;
  uint64_t& entry(experts::ExpertKey key) const;
  void publish(const experts::PlanEntry& entry);
  void take_back(int32_t slot);

  Sizes sizes_;
  experts::ExpertPool& pool_;
  experts::ExpertCache& source_;
  uint64_t* table_;
  Lookahead lookahead_;
  HostWalkStatistics statistics_;
  std::vector<experts::ExpertUse> uses_;  ///< [n_layers][n_experts], but for who is resident

  std::vector<experts::ExpertKey> published_;  ///< [slot]: whose entry in the table names it; layer -1: none
  std::vector<bool> prefetched_;               ///< [slot], and not selected since
  int submitted_ = 0;                          ///< segments of the token
  experts::Plan held_;                         ///< of the layer heard last
  std::optional<Lease> held_lease_;            ///< what was loaded for it

  // Predictions of the router in front of a layer: for that layer, and those behind it.
  struct Ahead {
    experts::PrefetchPlan plan;
    int heard = -1;                          ///< in front of which layer the router was
    std::vector<experts::ExpertKey> likely;  ///< not in slots then, most probable first
  };
  std::vector<Ahead> plans_;           ///< [distance - 1]
  int begun_layer_ = -1;               ///< whose likely experts were asked for last
  std::optional<Lease> ahead_;         ///< those of them that were not in slots
  std::vector<int32_t> ahead_ids_;     ///< of the lease
  std::vector<experts::Plan> copies_;  ///< under way beside
};

}  // namespace redlite::gpu
