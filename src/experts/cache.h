#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "model/model.h"

namespace redlite::experts {

/// How much memory the routed experts may take.
struct CacheSize {
  enum class Kind : uint8_t { Full, Bounded } kind = Kind::Full;
  uint64_t bytes = 0;  ///< Bounded only
};

struct CacheOptions {
  CacheSize size;
  bool prefetch = true;
};

/// Counters since construction. An expert selection is a hit if its bytes were in memory when acquired, a
/// miss if the computation had to have them read; an expert still on its way from a prefetch counts as a late
/// one.
struct CacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;           ///< read on the critical path
  uint64_t prefetched = 0;       ///< loads started by prediction
  uint64_t prefetch_useful = 0;  ///< ... whose expert was then selected, already there
  uint64_t prefetch_late = 0;    ///< ... selected while still being read
  uint64_t prefetch_wasted = 0;  ///< ... evicted, or left over, without being selected
  uint64_t bytes_read = 0;
  double stall_seconds = 0;  ///< time the computation waited with nothing else to do
};

/// The routed experts in bounded memory: the pool's bookkeeping, its arena, and the asynchronous reads that
/// fill it. With CacheSize Full nothing is copied: experts are used where the file is mapped.
///
/// Driven by one thread; the views it hands out may be read by any.
class ExpertCache {
 public:
  /// Throws Error when the cache cannot hold one token's experts, naming the least size that works.
  ExpertCache(const model::Model& model, CacheOptions options);
  ~ExpertCache();

  /// Experts of one layer, pinned until the lease is destroyed.
  class Lease {
   public:
    Lease(Lease&&) noexcept;
    ~Lease();
    /// The next expert whose bytes are there, as an index into the ids acquired; hits first, then in order of
    /// arrival. Waits if none is ready; nullopt when all were handed out. Throws Error (file, offset, expert)
    /// on a failed read.
    std::optional<int> next();
    /// The same without waiting: nullopt also when none is ready now. Counts no stall.
    std::optional<int> try_next();
    const model::Model::Expert& expert(int index) const;

   private:
    friend class ExpertCache;
    struct State;
    explicit Lease(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// Pins distinct experts (at most max_lease(layer)) and submits all reads of missing ones at once.
  Lease acquire(int layer, std::span<const int32_t> experts);

  /// Asks for experts that are probably needed next; costs no waiting. Ignored when prefetch is off.
  void prefetch(int layer, std::span<const int32_t> experts);

  /// Most experts of a layer that one lease may hold. At least n_experts_used.
  int max_lease(int layer) const;

  bool prefetching() const;
  CacheStats stats() const;
  uint64_t memory_bytes() const;  ///< of the arena

  /// The least CacheSize::bytes that works for a model, and the least that holds every expert.
  static uint64_t minimum_bytes(const model::Model& model);
  static uint64_t full_bytes(const model::Model& model);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::experts
