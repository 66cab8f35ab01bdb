#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experts/eviction.h"
#include "experts/io_mode.h"
#include "model/model.h"

namespace redlite::experts {

class Reader;

/// How much memory the routed experts may take.
struct CacheSize {
  enum class Kind : uint8_t { Full, Bounded } kind = Kind::Full;
  uint64_t bytes = 0;  ///< Bounded only
};

struct CacheOptions {
  CacheSize size;
  bool prefetch = true;
  IoMode io = IoMode::Auto;  ///< Bounded only
};

/// Counters since construction. Each selection of an expert is one of three: a hit if its bytes were in
/// memory when acquired, a miss if the computation had to have them read, late if they were still on their
/// way from a prefetch. Each load was either a miss or a prefetch. (An expert that two live leases hold and
/// the first of them is still having read is a hit of the second.)
struct CacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;           ///< read on the critical path
  uint64_t prefetched = 0;       ///< loads started ahead of time; the sum of the next three
  uint64_t prefetch_useful = 0;  ///< ... whose expert was then selected, already there
  uint64_t prefetch_late = 0;    ///< ... selected while still being read
  uint64_t prefetch_wasted = 0;  ///< ... evicted, or left over until now, without being selected
  uint64_t bytes_read = 0;       ///< by us; in a full cache the system pages the file in, uncounted
  double stall_seconds = 0;      ///< time the computation waited with nothing else to do
};

/// What happened to one expert since construction.
struct ExpertUse {
  uint32_t hits = 0;        ///< selected and in memory
  uint32_t misses = 0;      ///< selected and read, or still being read, on the critical path
  uint32_t prefetches = 0;  ///< read ahead of time
  bool resident = false;    ///< in memory now
};

/// The routed experts in bounded memory: the pool's bookkeeping, its arena, and the asynchronous reads that
/// fill it. With CacheSize Full nothing is copied: experts are used where the file is mapped.
///
/// Driven by one thread; the views it hands out may be read by any. Which experts are read when depends on
/// time, the bytes handed out never do.
class ExpertCache {
 public:
  /// Throws Error when the cache cannot hold one token's experts, naming the least size that works.
  ExpertCache(const model::Model& model, CacheOptions options);
  /// The same for files without a model around them, a reader of the caller's choice (nullptr: the best), and
  /// an order in which experts make room.
  ExpertCache(const ExpertFiles& files, CacheOptions options, std::unique_ptr<Reader> reader,
              std::unique_ptr<EvictionOrder> order = std::make_unique<LeastRecentlyUsed>());
  /// Waits for reads in flight. All leases must be gone.
  ~ExpertCache();

  /// Experts of one layer, pinned until the lease is destroyed, which may happen at any time.
  class Lease {
   public:
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();
    /// The next expert whose bytes are there, as an index into the ids acquired; hits first, then in order of
    /// arrival. Waits if none is ready; nullopt when all were handed out. Throws Error (file, offset, expert)
    /// on a failed read; the other experts can still be had, and the failed one is read again when it is
    /// acquired again.
    std::optional<int> next();
    /// The same without waiting: nullopt also when none is ready now. Counts no stall.
    std::optional<int> try_next();
    /// The same for what is known to be there, without looking after the reads.
    std::optional<int> next_present();
    const model::Model::Expert& expert(int index) const;
    /// The expert is not worth keeping: when this lease ends, its slot is given away before others.
    void retire(int index);

   private:
    friend class ExpertCache;
    struct State;
    explicit Lease(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// Pins distinct experts (at most max_lease(layer)) and submits all reads of missing ones at once. Where
  /// two_leases_fit(layer), a second lease may be taken while one lives, so that the next wave of a long
  /// prefill is read while this one is computed. May wait for prefetches in flight (a stall) when nearly
  /// every slot of a small cache is pinned. With Reads::Later they are submitted by the next call of
  /// begin_reads(), prefetch(), next() or try_next(), as it takes about 20 microseconds for each.
  enum class Reads : uint8_t { Now, Later };
  Lease acquire(int layer, std::span<const int32_t> experts, Reads reads = Reads::Now);
  void begin_reads();

  /// Tells which experts are probably needed next, most probable first; only the first n_experts_used count.
  /// Best called right after acquire() of the layer before. Costs no waiting: what is resident is marked as
  /// used, the rest is read when no read of an acquire() is in flight (next() and try_next() look after
  /// that), and what was not begun when the layer is acquired is forgotten. Ignored when prefetch is off.
  void prefetch(int layer, std::span<const int32_t> experts);

  /// Begins to read the experts that a layer will very probably need, for a long prefill's next layer: in
  /// this order, at once, as many as there are slots besides those pinned and those worth keeping. What is
  /// resident is marked as used. Ignored when prefetch is off.
  void read_ahead(int layer, std::span<const int32_t> experts);

  /// Replaces what is read when the disk has next to nothing else to do: experts that the layers to come will
  /// probably need, first those to begin with. They are begun one by one by whatever looks after the reads,
  /// as long as few experts are under way, so that those of an acquire() need not wait behind many.
  void read_when_idle(std::span<const ExpertKey> keys);

  /// Most experts of a layer that one lease may hold: a quarter of the slots its class has, n_experts_used at
  /// least.
  int max_lease(int layer) const;
  /// How many of `n` experts that a chunk of tokens uses should stay for later tokens; the others, if any,
  /// are to be retired, so that they pass through few slots and do not evict what the other layers need next.
  int worth_keeping(int layer, int n) const;
  bool resident(int layer, int32_t expert) const;
  /// Where an expert's bytes lie now, until the next acquire() or prefetch; nullopt: not in memory, or still
  /// being read.
  std::optional<model::Model::Expert> find(int layer, int32_t expert) const;
  /// True when two leases of max_lease(layer) experts may live at the same time.
  bool two_leases_fit(int layer) const;

  bool prefetching() const;
  CacheStats stats() const;
  std::vector<ExpertUse> uses() const;  ///< [n_layers][n_experts]
  uint64_t memory_bytes() const;        ///< of the arena
  /// Where experts are handed out from; empty in a full cache, whose experts lie in the mapped files.
  std::span<std::byte> memory();
  /// How experts are read: "mapped", "buffered reads by threads", "direct reads by io_uring (measured:
  /// direct 3.1 GB/s, buffered 0.9)" where it was IoMode::Auto's choice.
  std::string io() const;

  /// The least CacheSize::bytes that works for a model, and the least that holds every expert.
  static uint64_t minimum_bytes(const model::Model& model);
  static uint64_t full_bytes(const model::Model& model);
  /// What `--cache-mib auto` means: Full if the memory that is free now, less `other_bytes` for everything
  /// else and a reserve, holds all experts; else Bounded with what is left. Throws Error when that is below
  /// the minimum.
  static CacheSize auto_size(const model::Model& model, uint64_t other_bytes);

 private:
  struct Bounded;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::experts
