#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"

namespace redlite::constrain {

/// Runs a grammar: a configuration is the set of all places where the text so far may be, each with its
/// stack. Configurations and stacks are kept once each, and so are the steps between them, as they come up: a
/// step that was taken before is a look into a table.
class Automaton {
 public:
  using Config = int32_t;
  static constexpr Config kDead = -1;

  /// Bytes that the tables may take before overflown() says so.
  static constexpr size_t kMaxBytes = size_t{8} << 20;

  explicit Automaton(std::shared_ptr<const Grammar> grammar);

  Config start() const { return start_; }
  /// kDead if the byte may not come.
  Config next(Config config, uint8_t byte) {
    const Config known = steps_[static_cast<size_t>(config)][byte];
    return known != kUnknown ? known : compute_next(config, byte);
  }
  /// The text may end here.
  bool may_end(Config config) const { return configs_[static_cast<size_t>(config)].may_end; }

  /// One place: a Bytes or String node, and what its Return leads to.
  struct Place {
    NodeId node;
    int32_t frame;
    uint32_t characters;  ///< of a String
    uint8_t state;        ///< of a String

    bool operator==(const Place&) const = default;
    bool operator<(const Place& other) const {
      return std::tie(node, frame, characters, state) <
             std::tie(other.node, other.frame, other.characters, other.state);
    }
  };
  std::span<const Place> places(Config config) const;
  /// The configuration of some of a configuration's places.
  Config subset(std::span<const Place> places, bool may_end);
  /// Where it goes on behind a String that has ended.
  Config after_string(const Place& place);

  const Grammar& grammar() const { return *grammar_; }

  /// The tables are full: time for restart().
  bool overflown() const { return bytes_ > kMaxBytes; }
  /// How many places were looked at so far: a measure of time.
  uint64_t work() const { return work_; }
  /// Lets configurations have no more places than this from now on. What is dropped are alternatives; what
  /// remains is as right.
  void limit_places(size_t n) { max_places_ = n; }
  /// Forgets everything but one configuration, which gets a new number and keeps to the limit.
  Config restart(Config config);

 private:
  static constexpr Config kUnknown = -2;
  static constexpr int32_t kBottom = -1;
  static constexpr size_t kMaxPlaces = 1024;

  /// Where a Return leads: a node, or, if `round` is not 0, the end of that round of a Loop.
  struct Frame {
    NodeId node;
    uint32_t round;
    int32_t below;

    bool operator==(const Frame&) const = default;
  };
  struct FrameHash {
    size_t operator()(const Frame& f) const;
  };
  struct ConfigInfo {
    size_t begin;
    uint32_t count;
    bool may_end;
  };
  struct Seen {
    uint64_t key = 0;
    uint32_t round = 0;
  };
  static constexpr size_t kSeenSlots = 16 * kMaxPlaces;
  /// The places that are reached from nodes without a byte.
  struct Closure {
    std::vector<std::pair<NodeId, int32_t>> todo;
    std::vector<Seen> seen =
        std::vector<Seen>(kSeenSlots);  ///< a hash table; of this closure where `round` says so
    uint32_t round = 1;
    size_t n_seen = 0;
    std::vector<Place> places;
    bool may_end = false;
  };

  Config compute_next(Config config, uint8_t byte);
  void close(NodeId node, int32_t frame);
  bool first_visit(NodeId node, int32_t frame);
  void go_back(int32_t frame);
  void enter_round(NodeId loop, uint32_t round, int32_t below);
  int32_t push(NodeId node, uint32_t round, int32_t below);
  Config intern_closure();
  Config intern(std::span<const Place> places, bool may_end);
  void clear();

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, int32_t, FrameHash> frame_ids_;
  std::vector<Place> all_places_;
  std::vector<ConfigInfo> configs_;
  std::vector<std::unique_ptr<Config[]>> steps_;
  std::unordered_multimap<size_t, Config> config_ids_;
  Closure closure_;
  Config start_ = kDead;
  size_t max_places_ = kMaxPlaces;
  size_t bytes_ = 0;
  uint64_t work_ = 0;
};

}  // namespace redlite::constrain
