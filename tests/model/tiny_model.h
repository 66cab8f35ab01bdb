#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "model/runner.h"

namespace redlite::testing {

/// A model of a few thousand random F32 weights, to be changed as a test likes and written as GGUF. Valid as
/// constructed, with a vocabulary, for every supported architecture. The same name gives a tensor the same
/// values in every model.
class TinyModel {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;  ///< GGUF order
    std::vector<float> values;
  };

  static constexpr int kEmbd = 32, kVocab = 48, kLayers = 4;
  static constexpr int kHeads = 4, kKvHeads = 2, kHeadDim = 16, kRopeDims = 8;
  static constexpr int kConvKernel = 4, kKHeads = 2, kVHeads = 4, kStateDim = 8;
  static constexpr int kExperts = 8, kExpertsUsed = 3, kExpertFf = 16, kSharedFf = 24;
  static constexpr int kKeyDim = kKHeads * kStateDim, kValueDim = kVHeads * kStateDim;
  static constexpr int kConvDim = 2 * kKeyDim + kValueDim;

  explicit TinyModel(std::string architecture);

  /// Sets "<architecture>.<key>".
  TinyModel& set(std::string_view key, gguf::Value value);
  TinyModel& unset(std::string_view key);
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }

  Tensor& tensor(std::string_view name);
  TinyModel& remove(std::string_view name);
  /// Adds a tensor of random values.
  Tensor& add(std::string name, std::vector<uint64_t> shape);

  /// The same weights in a layout that some files have.
  TinyModel& fuse_gate_up(int layer);    ///< ffn_gate_up_exps
  TinyModel& fuse_attention(int layer);  ///< attn_qkv in an attention layer
  TinyModel& use_ssm_in(int layer);      ///< ssm_in for attn_qkv and attn_gate (qwen3next)
  TinyModel& tie_output();               ///< no output.weight
  TinyModel& add_mtp_block();            ///< one more block, which the model proper does not use

  void write(const std::string& path) const;

  std::map<std::string, gguf::Value> metadata;
  std::vector<Tensor> tensors;

 private:
  void add_attention(int layer, bool gated);
  void add_delta_net(int layer);
  void add_ffn(int layer, bool shared);

  std::string architecture_;
};

/// n pseudo-random tokens below n_vocab, the same ones every time.
std::vector<model::Token> some_tokens(int n, int n_vocab);

}  // namespace redlite::testing
