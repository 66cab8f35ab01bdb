#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "model/config.h"
#include "model/weights.h"

namespace redlite::model {

/// An open model: its file, configuration, dense weights (mapped) and where each expert lies.
///
/// Opening checks that every tensor the architecture needs is there with the right shape and a type we read;
/// what is wrong throws an Error naming tensor and file. Nothing but metadata and short vectors is read.
class Model {
 public:
  explicit Model(const std::string& path) : Model(gguf::File(path)) {}
  explicit Model(gguf::File file);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& path() const { return file_.path(); }
  const gguf::File& file() const { return file_; }
  const Config& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  const std::vector<ExpertLayer>& experts() const { return experts_; }

  /// One expert's matrices in the mapping.
  struct Expert {
    Matrix gate;  ///< expert_ff x n_embd
    Matrix up;    ///< expert_ff x n_embd
    Matrix down;  ///< n_embd x expert_ff
  };
  Expert mapped_expert(int layer, int expert) const;

  /// The bytes of every dense tensor, in no order; one that has two uses is there twice.
  const std::vector<std::span<const std::byte>>& dense_tensors() const { return dense_tensors_; }
  uint64_t dense_bytes() const { return dense_bytes_; }  ///< of all dense tensors in the file, MTP apart
  uint64_t expert_bytes() const;                         ///< of all routed experts in the file, MTP apart

 private:
  gguf::File file_;
  Config config_;
  Weights weights_;
  std::vector<ExpertLayer> experts_;
  std::vector<std::span<const std::byte>> dense_tensors_;
  uint64_t dense_bytes_ = 0;
};

}  // namespace redlite::model
