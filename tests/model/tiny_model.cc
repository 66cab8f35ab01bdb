#include "model/tiny_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "base/error.h"
#include "gguf/writer.h"

namespace redlite::testing {

namespace {

// Uniform in [-1, 1), from a hash of the tensor's name and the index.
class Random {
 public:
  explicit Random(std::string_view name) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  float next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<float>(static_cast<int32_t>((z ^ (z >> 31)) >> 32)) * 0x1p-31f;
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

// Weights with which every part of the model matters to the logits.
float scaled(const TinyModel::Tensor& tensor, float random) {
  const std::string_view name = tensor.name;
  if (name.ends_with("norm.weight")) return 1 + 0.3f * random;
  if (name.ends_with("ssm_a")) return -std::exp(random);
  if (name.ends_with("ssm_dt.bias")) return random;
  if (name == "token_embd.weight") return random;
  return random * std::sqrt(6.0f / static_cast<float>(tensor.shape[0]));
}

std::string block(int layer, std::string_view name) {
  return fmt::format("blk.{}.{}", layer, name);
}

}  // namespace

TinyModel::TinyModel(std::string architecture) : architecture_(std::move(architecture)) {
  const bool hybrid = architecture_ != "qwen3moe";
  metadata["general.architecture"] = architecture_;
  const auto number = [&](std::string_view name, int value) { set(name, static_cast<uint32_t>(value)); };
  number("block_count", kLayers);
  number("context_length", 512);
  number("embedding_length", kEmbd);
  number("attention.head_count", kHeads);
  number("attention.head_count_kv", kKvHeads);
  number("attention.key_length", kHeadDim);
  number("attention.value_length", kHeadDim);
  number("rope.dimension_count", hybrid ? kRopeDims : kHeadDim);
  set("attention.layer_norm_rms_epsilon", 1e-6f);
  set("rope.freq_base", 10000.0f);
  number("expert_count", kExperts);
  number("expert_used_count", kExpertsUsed);
  number("expert_feed_forward_length", kExpertFf);
  if (hybrid) {
    number("expert_shared_feed_forward_length", kSharedFf);
    number("ssm.conv_kernel", kConvKernel);
    number("ssm.state_size", kStateDim);
    number("ssm.group_count", kKHeads);
    number("ssm.time_step_rank", kVHeads);
    number("ssm.inner_size", kValueDim);
  }
  if (architecture_ == "qwen35moe") {
    const int half = kRopeDims / 2;
    set("rope.dimension_sections", gguf::make_array(std::vector<int32_t>{half - 2, 1, 1, 0}));
  }

  metadata["tokenizer.ggml.model"] = std::string("gpt2");
  metadata["tokenizer.ggml.pre"] = std::string("qwen2");
  std::vector<std::string> tokens;
  for (int i = 0; i < kVocab; ++i) tokens.push_back(std::string(1, static_cast<char>('A' + i)));
  metadata["tokenizer.ggml.tokens"] = gguf::make_array(tokens);
  metadata["tokenizer.ggml.token_type"] = gguf::make_array(std::vector<int32_t>(kVocab, 1));
  metadata["tokenizer.ggml.merges"] = gguf::make_array(std::vector<std::string>{"A B"});
  metadata["tokenizer.ggml.eos_token_id"] = uint32_t{0};

  add("token_embd.weight", {kEmbd, kVocab});
  add("output_norm.weight", {kEmbd});
  add("output.weight", {kEmbd, kVocab});
  for (int i = 0; i < kLayers; ++i) {
    add(block(i, "attn_norm.weight"), {kEmbd});
    add(block(i, hybrid ? "post_attention_norm.weight" : "ffn_norm.weight"), {kEmbd});
    if (hybrid && (i + 1) % 4 != 0) {
      add_delta_net(i);
    } else {
      add_attention(i, hybrid);
    }
    add_ffn(i, hybrid);
  }
}

void TinyModel::add_attention(int layer, bool gated) {
  const uint64_t width = kHeads * kHeadDim;
  add(block(layer, "attn_q.weight"), {kEmbd, gated ? 2 * width : width});
  add(block(layer, "attn_k.weight"), {kEmbd, kKvHeads * kHeadDim});
  add(block(layer, "attn_v.weight"), {kEmbd, kKvHeads * kHeadDim});
  add(block(layer, "attn_output.weight"), {width, kEmbd});
  add(block(layer, "attn_q_norm.weight"), {kHeadDim});
  add(block(layer, "attn_k_norm.weight"), {kHeadDim});
}

void TinyModel::add_delta_net(int layer) {
  add(block(layer, "attn_qkv.weight"), {kEmbd, kConvDim});
  add(block(layer, "attn_gate.weight"), {kEmbd, kValueDim});
  if (architecture_ == "qwen3next") {
    add(block(layer, "ssm_ba.weight"), {kEmbd, 2 * kVHeads});
  } else {
    add(block(layer, "ssm_beta.weight"), {kEmbd, kVHeads});
    add(block(layer, "ssm_alpha.weight"), {kEmbd, kVHeads});
  }
  add(block(layer, "ssm_conv1d.weight"), {kConvKernel, kConvDim});
  add(block(layer, "ssm_dt.bias"), {kVHeads});
  add(block(layer, "ssm_a"), {kVHeads});
  add(block(layer, "ssm_norm.weight"), {kStateDim});
  add(block(layer, "ssm_out.weight"), {kValueDim, kEmbd});
}

void TinyModel::add_ffn(int layer, bool shared) {
  add(block(layer, "ffn_gate_inp.weight"), {kEmbd, kExperts});
  add(block(layer, "ffn_gate_exps.weight"), {kEmbd, kExpertFf, kExperts});
  add(block(layer, "ffn_up_exps.weight"), {kEmbd, kExpertFf, kExperts});
  add(block(layer, "ffn_down_exps.weight"), {kExpertFf, kEmbd, kExperts});
  if (!shared) return;
  add(block(layer, "ffn_gate_inp_shexp.weight"), {kEmbd});
  add(block(layer, "ffn_gate_shexp.weight"), {kEmbd, kSharedFf});
  add(block(layer, "ffn_up_shexp.weight"), {kEmbd, kSharedFf});
  add(block(layer, "ffn_down_shexp.weight"), {kSharedFf, kEmbd});
}

TinyModel& TinyModel::set(std::string_view name, gguf::Value value) {
  metadata[key(name)] = std::move(value);
  return *this;
}

TinyModel& TinyModel::unset(std::string_view name) {
  metadata.erase(key(name));
  return *this;
}

TinyModel::Tensor& TinyModel::tensor(std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &Tensor::name);
  RL_CHECK(found != tensors.end(), "{}", name);
  return *found;
}

TinyModel& TinyModel::remove(std::string_view name) {
  tensors.erase(tensors.begin() + (&tensor(name) - tensors.data()));
  return *this;
}

TinyModel::Tensor& TinyModel::add(std::string name, std::vector<uint64_t> shape) {
  Tensor& out = tensors.emplace_back(Tensor{std::move(name), std::move(shape), {}});
  out.values.resize(std::accumulate(out.shape.begin(), out.shape.end(), size_t{1}, std::multiplies<>()));
  Random random(out.name);
  for (float& v : out.values) v = scaled(out, random.next());
  return out;
}

TinyModel& TinyModel::fuse_gate_up(int layer) {
  const size_t size = size_t{kEmbd} * kExpertFf;
  const std::vector<float> gate = tensor(block(layer, "ffn_gate_exps.weight")).values;
  const std::vector<float> up = tensor(block(layer, "ffn_up_exps.weight")).values;
  remove(block(layer, "ffn_gate_exps.weight")).remove(block(layer, "ffn_up_exps.weight"));
  Tensor& both = add(block(layer, "ffn_gate_up_exps.weight"), {kEmbd, 2 * kExpertFf, kExperts});
  for (size_t e = 0; e < kExperts; ++e) {
    std::copy_n(gate.data() + e * size, size, both.values.data() + 2 * e * size);
    std::copy_n(up.data() + e * size, size, both.values.data() + (2 * e + 1) * size);
  }
  return *this;
}

TinyModel& TinyModel::fuse_attention(int layer) {
  std::vector<float> values;
  for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) {
    const std::vector<float>& part = tensor(block(layer, name)).values;
    values.insert(values.end(), part.begin(), part.end());
    remove(block(layer, name));
  }
  add(block(layer, "attn_qkv.weight"), {kEmbd, values.size() / kEmbd}).values = values;
  return *this;
}

TinyModel& TinyModel::use_ssm_in(int layer) {
  const std::vector<float> qkv = tensor(block(layer, "attn_qkv.weight")).values;
  const std::vector<float> z = tensor(block(layer, "attn_gate.weight")).values;
  remove(block(layer, "attn_qkv.weight")).remove(block(layer, "attn_gate.weight"));
  std::vector<float> values;
  const auto append_rows = [&](const std::vector<float>& from, int first, int count) {
    values.insert(values.end(), from.begin() + first * kEmbd, from.begin() + (first + count) * kEmbd);
  };
  const int v_rows = kValueDim / kKHeads;  // of the V heads that share a K head
  for (int head = 0; head < kKHeads; ++head) {
    append_rows(qkv, head * kStateDim, kStateDim);
    append_rows(qkv, kKeyDim + head * kStateDim, kStateDim);
    append_rows(qkv, 2 * kKeyDim + head * v_rows, v_rows);
    append_rows(z, head * v_rows, v_rows);
  }
  add(block(layer, "ssm_in.weight"), {kEmbd, kConvDim + kValueDim}).values = values;
  return *this;
}

TinyModel& TinyModel::tie_output() {
  return remove("output.weight");
}

TinyModel& TinyModel::add_mtp_block() {
  set("block_count", uint32_t{kLayers + 1}).set("nextn_predict_layers", uint32_t{1});
  add(block(kLayers, "attn_norm.weight"), {kEmbd});
  add(block(kLayers, "post_attention_norm.weight"), {kEmbd});
  add_attention(kLayers, true);
  add_ffn(kLayers, true);
  add(block(kLayers, "nextn.eh_proj.weight"), {2 * kEmbd, kEmbd});
  add(block(kLayers, "nextn.enorm.weight"), {kEmbd});
  add(block(kLayers, "nextn.hnorm.weight"), {kEmbd});
  return *this;
}

void TinyModel::write(const std::string& path) const {
  gguf::Writer writer(path);
  for (const auto& [name, value] : metadata) writer.add(name, value);
  for (const Tensor& t : tensors) writer.add_tensor(t.name, t.shape, quant::Type::F32);
  writer.begin_data();
  for (const Tensor& t : tensors) writer.write(std::as_bytes(std::span(t.values)));
  writer.finish();
}

std::vector<model::Token> some_tokens(int n, int n_vocab) {
  std::vector<model::Token> tokens;
  uint32_t seed = 1;
  for (int i = 0; i < n; ++i) {
    seed = seed * 1664525 + 1013904223;
    tokens.push_back(static_cast<model::Token>((seed >> 8) % static_cast<uint32_t>(n_vocab)));
  }
  return tokens;
}

}  // namespace redlite::testing
