#include "model/model.h"

#include <utility>

#include "base/error.h"
#include "base/huge_pages.h"
#include "model/architecture.h"

namespace redlite::model {

Model::Model(gguf::File file) : file_(std::move(file)), config_(read_config(file_)) {
  // Before the first of them is touched. What has three dimensions is routed experts.
  for (const gguf::TensorInfo& tensor : file_.tensors()) {
    if (tensor.shape.size() < 3) advise_huge_pages(file_.data(tensor).data(), tensor.bytes);
  }
  const Architecture& architecture = find_architecture(file_);
  Binder binder(file_);
  architecture.bind(binder, config_, weights_, experts_);
  const int blocks = Keys(file_, architecture.name).count("block_count");
  binder.refuse_unused(architecture.name, config_.n_layers, blocks);
  dense_tensors_ = binder.dense();
  dense_bytes_ = binder.dense_bytes();
}

Model::Expert Model::mapped_expert(int layer, int expert) const {
  RL_CHECK(layer >= 0 && layer < config_.n_layers && expert >= 0 && expert < config_.n_experts,
           "layer {}, expert {}", layer, expert);
  const ExpertLayer& experts = experts_[static_cast<size_t>(layer)];
  const auto mapped = [&](const ExpertTensor& tensor) {
    return Matrix{file_.shard_bytes(tensor.shard).data() + tensor.offset_of(expert), tensor.type, tensor.rows,
                  tensor.cols};
  };
  return {mapped(experts.gate), mapped(experts.up), mapped(experts.down)};
}

uint64_t Model::expert_bytes() const {
  uint64_t total = 0;
  for (const ExpertLayer& layer : experts_)
    total += layer.triplet_bytes() * static_cast<uint64_t>(config_.n_experts);
  return total;
}

}  // namespace redlite::model
