#pragma once

#include <cstdint>
#include <string>

#include "gguf/gguf.h"
#include "quant/type.h"

namespace redlite::convert {

struct Result {
  uint64_t bytes = 0;   ///< of the file written
  int n_tensors = 0;    ///< in it
  int n_converted = 0;  ///< of them decoded and stored as another type
  int n_fallback = 0;   ///< F16 because their rows are not of whole Q8_0 blocks
};

/// Writes a model anew with its weights decoded and stored as `target` (F32, F16 or Q8_0), as one file,
/// merging a split set. Metadata is kept but for what describes the container: general.file_type is set,
/// general.alignment and split.* go.
///
/// Small tensors that llama.cpp wants in F32 (vectors, norms, routers, convolutions) become F32 whatever the
/// target; tensors that have the wanted type already are copied. Uses little memory whatever the model's
/// size; `path` appears only when complete. Throws Error on what the system refuses, on a value that the
/// target cannot hold, and when `path` is one of the files being read.
Result convert(const gguf::File& file, const std::string& path, quant::Type target);

/// The type that convert() gives a tensor.
quant::Type target_type(const gguf::TensorInfo& tensor, quant::Type target);

}  // namespace redlite::convert
