#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/huge_pages.h"
#include "cpu/thread_pool.h"
#include "model/weights.h"

namespace redlite::cpu {

/// The routers of all layers in another type of fewer bytes, each made when it is first asked for.
///
/// Files keep routers in F32, so a token of an 80B reads 200 MB of them. What was trained in BF16 loses no
/// bit in that type, as 16 bits of every value are zero; a guess at what the next layer will need may lose
/// some.
class RouterCopies {
 public:
  enum class Loss : uint8_t { None, Allowed };

  /// `loss`: whether a copy may be inexact; else a router that is not all the type's values serves itself, as
  /// one does that the type does not fit or make smaller.
  RouterCopies(const model::Weights& weights, quant::Type type, Loss loss);

  /// A layer's router; its values are the file's if no loss is allowed.
  model::Matrix of(int layer, ThreadPool& pool);

  /// Memory for all copies, most of which is taken as they are made.
  static uint64_t bytes_needed(const model::Weights& weights, quant::Type type);

 private:
  enum class State : uint8_t { Unknown, Made, ServesItself };
  static model::Matrix shape_of(const model::Matrix& router, quant::Type type);
  bool make(const model::Matrix& router, const model::Matrix& copy, std::byte* rows, ThreadPool& pool) const;

  const model::Weights& weights_;
  quant::Type type_;
  Loss loss_;
  HugeFloats memory_;            ///< in one piece for the sake of huge pages
  std::vector<uint64_t> first_;  ///< by layer: where its copy begins, a byte of memory_
  std::vector<State> state_;     ///< by layer
};

}  // namespace redlite::cpu
