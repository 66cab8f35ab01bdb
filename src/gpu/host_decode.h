#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "experts/cache.h"
#include "experts/pool.h"
#include "experts/reader.h"
#include "experts/two_tiers.h"
#include "gpu/device_model.h"
#include "gpu/expert_stream.h"
#include "gpu/host_walk.h"
#include "gpu/kernels/load_experts.h"
#include "gpu/profile.h"
#include "gpu/registered_files.h"

namespace redlite::gpu {

/// Who decides when a token goes on from one layer to the next, where the host manages the slots.
enum class DecodeMode : uint8_t {
  automatic,  ///< what costs less, as the misses are
  routed,     ///< the GPU, over several layers, until something is missing
  sync,       ///< the host, after each layer's router
};

struct HostOptions {
  /// Of host memory between the file and the slots; full: the mapped file itself, kept in memory.
  experts::CacheSize tier;
  experts::IoMode io = experts::IoMode::Auto;
  DecodeMode decode = DecodeMode::automatic;
  int lookahead = 0;  ///< layers submitted ahead; 0: as the misses are
  bool prefetch = true;
  /// How long the GPU may take to answer before that is an error.
  std::chrono::milliseconds patience = std::chrono::minutes(2);
  /// Reads the experts; nullptr: the best there is. For tests.
  std::function<std::unique_ptr<experts::Reader>()> reader;
};

/// Decoding with slots that the host manages: the device's side of HostWalk, the table, what the kernels
/// report, and the graphs of a token's segments.
class HostDecode final : private HostGpu {
 public:
  /// Encodes segment `segment` of a token (HostGpu) into the stream.
  using Encode = std::function<void(int segment, bool predict, bool logits)>;

  /// `profile` (or nullptr) times the loads. Throws Error when a cache is too small or memory does not
  /// suffice.
  HostDecode(const model::Model& model, Device& device, Stream& stream, DeviceModel& weights,
             uint64_t cache_bytes, const HostOptions& options, Encode encode, Profile* profile);
  ~HostDecode() override;

  /// Device memory of the least cache.
  static uint64_t least_cache_bytes(const model::Model& model);

  /// What Route gets for layer l.
  HostSlots slots(int l) const;
  /// So many layers are predicted by each router; and where it tells what layer l is predicted to select, by
  /// the router `distance` before.
  int predicted_layers() const;
  HostSlots prediction(int l, int distance) const;
  size_t scratch_bytes() const { return scratch_.bytes(); }
  uint32_t* stop_flag() const { return stop_; }
  /// Where the kernels' slots of the running token are written.
  void set_slots_of_token(int32_t* slots) { slots_of_token_ = slots; }

  /// Runs the token whose embedding and Step (with `number`) are in place, to its end. With `graphs` off its
  /// kernels are launched one by one, and never behind a router that has not been heard. Throws Error when an
  /// expert cannot be read, the GPU fails or does not answer; the next token may be run all the same, from a
  /// state of its own.
  void run(uint32_t number, bool logits, bool graphs);

  /// Between tokens: ends what is under way beside. Until the next run() nothing changes in the slots, and
  /// what supply() names is free to use.
  void pause();
  ExpertSupply supply();

  HostWalkStatistics statistics() const { return walk_ ? walk_->statistics() : HostWalkStatistics{}; }
  /// See HostWalk.
  std::vector<experts::ExpertUse> uses() const;
  experts::CacheStats tier_statistics() const { return source_.stats(); }
  uint64_t loaded_bytes() const { return loaded_bytes_; }
  /// "look-ahead by the misses (a stop costs 6.1 us, a skipped layer 3.9)"
  std::string description() const;

 private:
  void submit(int first, int last, bool predict) override;
  const RouteRecord* routed(int layer) override;
  const RouteRecord* predicted(int layer, int distance) override;
  void load(int layer, std::span<const SlotLoad> loads) override;
  void resume(int layer, std::span<const SlotLoad> loads, std::span<const int32_t> slots) override;
  void load_beside(int layer, std::span<const SlotLoad> loads) override;
  bool beside_done() override;
  void wait_for_beside() override;

  void launch_loads(Stream& stream, const LoadExperts::Params& params);
  LoadExperts::Params load_params(int layer, std::span<const SlotLoad> loads);
  const std::byte* on_device(const std::byte* host) const;
  const RouteRecord* if_current(const RouteRecord& record) const;
  Lookahead choose_lookahead();  ///< measures, if it is left open

  const model::Config& config_;
  Device& device_;
  Stream& stream_;
  const DeviceModel& weights_;
  HostOptions options_;
  Encode encode_;
  Profile* profile_;

  std::optional<experts::TwoTiers> tiers_;  ///< where host memory is bounded, too
  experts::ExpertPool pool_;
  experts::ExpertCache source_;
  model::Model::Expert mapped_expert_;    ///< the first one of the first layer
  std::optional<RegisteredFiles> files_;  ///< a full tier
  HostBuffer tier_;                       ///< a bounded one
  HostBuffer table_;                      ///< uint64_t [n_layers][n_experts]
  HostBuffer records_;  ///< RouteRecord [1 + Route::kMostAhead][n_layers]: of the routers, of the
                        ///< predictions by distance
  Arena scratch_;
  uint32_t* stop_ = nullptr;
  int32_t* slots_of_token_ = nullptr;
  std::unique_ptr<Stream> beside_;
  std::unique_ptr<Event> beside_over_;
  std::optional<HostWalk> walk_;
  bool lookahead_chosen_ = false;  ///< at the first token that runs from graphs

  // Of the running token.
  uint32_t number_ = 0;
  bool logits_ = false;
  bool graphs_on_ = true;
  int polls_ = 0;
  std::chrono::steady_clock::time_point submitted_at_;

  /// Segments [first, last), with predictions, with logits.
  std::map<std::tuple<int, int, bool, bool>, std::unique_ptr<Graph>> graphs_;
  uint64_t loaded_bytes_ = 0;
};

}  // namespace redlite::gpu
