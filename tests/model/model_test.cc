#include "model/model.h"

#include <gmock/gmock.h>

#include <cstring>

#include "base/error.h"
#include "model/temporary_model.h"

namespace redlite::model {
namespace {

using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<float> floats(const Matrix& m) {
  EXPECT_EQ(m.type, quant::Type::F32);
  std::vector<float> out(static_cast<size_t>(m.rows) * static_cast<size_t>(m.cols));
  std::memcpy(out.data(), m.data, out.size() * sizeof(float));
  return out;
}

std::vector<float> slice(const std::vector<float>& v, size_t first, size_t count) {
  return {v.begin() + static_cast<ptrdiff_t>(first), v.begin() + static_cast<ptrdiff_t>(first + count)};
}

TEST(Model, BindsEveryTensorOfTheDemoModel) {
  const Model model(REDLITE_DEMO_MODEL);
  const Config& c = model.config();
  EXPECT_EQ(c.architecture, "qwen3next");
  uint64_t all = 0;
  for (const gguf::TensorInfo& tensor : model.file().tensors()) all += tensor.bytes;
  EXPECT_EQ(model.dense_bytes() + model.expert_bytes(), all);
  EXPECT_EQ(model.weights().layers.size(), static_cast<size_t>(c.n_layers));
  EXPECT_EQ(model.experts().size(), static_cast<size_t>(c.n_layers));
}

TEST(Model, BindsNamesToFields) {
  TinyModel tiny("qwen3next");
  const TemporaryModel file(tiny);
  const Model model(file.path());
  const Weights& w = model.weights();
  EXPECT_EQ(floats(w.token_embd), tiny.tensor("token_embd.weight").values);
  EXPECT_EQ(w.output_norm, tiny.tensor("output_norm.weight").values);
  EXPECT_EQ(floats(w.output), tiny.tensor("output.weight").values);

  const LayerWeights& delta = w.layers[1];
  EXPECT_EQ(delta.attn_norm, tiny.tensor("blk.1.attn_norm.weight").values);
  EXPECT_EQ(delta.ffn_norm, tiny.tensor("blk.1.post_attention_norm.weight").values);
  EXPECT_EQ(floats(delta.delta.qkv), tiny.tensor("blk.1.attn_qkv.weight").values);
  EXPECT_EQ(floats(delta.delta.z), tiny.tensor("blk.1.attn_gate.weight").values);
  EXPECT_EQ(floats(delta.delta.ba), tiny.tensor("blk.1.ssm_ba.weight").values);
  EXPECT_EQ(delta.delta.conv, tiny.tensor("blk.1.ssm_conv1d.weight").values);
  EXPECT_EQ(delta.delta.dt, tiny.tensor("blk.1.ssm_dt.bias").values);
  EXPECT_EQ(delta.delta.a, tiny.tensor("blk.1.ssm_a").values);
  EXPECT_EQ(delta.delta.norm, tiny.tensor("blk.1.ssm_norm.weight").values);
  EXPECT_EQ(floats(delta.delta.output), tiny.tensor("blk.1.ssm_out.weight").values);
  EXPECT_FALSE(delta.delta.qkvz);
  EXPECT_FALSE(delta.delta.beta);
  EXPECT_FALSE(delta.attention.q);
  EXPECT_EQ(floats(delta.ffn.router), tiny.tensor("blk.1.ffn_gate_inp.weight").values);
  EXPECT_EQ(floats(delta.ffn.shared_gate_inp), tiny.tensor("blk.1.ffn_gate_inp_shexp.weight").values);
  EXPECT_EQ(floats(delta.ffn.shared_gate), tiny.tensor("blk.1.ffn_gate_shexp.weight").values);
  EXPECT_EQ(floats(delta.ffn.shared_up), tiny.tensor("blk.1.ffn_up_shexp.weight").values);
  EXPECT_EQ(floats(delta.ffn.shared_down), tiny.tensor("blk.1.ffn_down_shexp.weight").values);

  const AttentionWeights& attention = w.layers[3].attention;
  EXPECT_EQ(floats(attention.q), tiny.tensor("blk.3.attn_q.weight").values);
  EXPECT_EQ(attention.q.rows, 2 * 4 * 16);
  EXPECT_EQ(floats(attention.k), tiny.tensor("blk.3.attn_k.weight").values);
  EXPECT_EQ(floats(attention.v), tiny.tensor("blk.3.attn_v.weight").values);
  EXPECT_EQ(floats(attention.output), tiny.tensor("blk.3.attn_output.weight").values);
  EXPECT_EQ(attention.q_norm, tiny.tensor("blk.3.attn_q_norm.weight").values);
  EXPECT_EQ(attention.k_norm, tiny.tensor("blk.3.attn_k_norm.weight").values);
}

TEST(Model, MapsEachExpert) {
  TinyModel tiny("qwen3moe");
  const TemporaryModel file(tiny);
  const Model model(file.path());
  const size_t size = 32 * 16;
  for (const int e : {0, 5, 7}) {
    const Model::Expert expert = model.mapped_expert(2, e);
    const size_t first = static_cast<size_t>(e) * size;
    EXPECT_EQ(floats(expert.gate), slice(tiny.tensor("blk.2.ffn_gate_exps.weight").values, first, size));
    EXPECT_EQ(floats(expert.up), slice(tiny.tensor("blk.2.ffn_up_exps.weight").values, first, size));
    EXPECT_EQ(floats(expert.down), slice(tiny.tensor("blk.2.ffn_down_exps.weight").values, first, size));
    EXPECT_EQ(expert.gate.rows, 16);
    EXPECT_EQ(expert.down.rows, 32);
  }
  EXPECT_EQ(model.experts()[2].triplet_bytes(), 3 * size * sizeof(float));
  EXPECT_EQ(model.expert_bytes(), 4 * 8 * 3 * size * sizeof(float));
}

TEST(Model, FusedGateAndUpAreTheSameExperts) {
  TinyModel tiny("qwen3next");
  const TemporaryModel plain(tiny), fused(tiny.fuse_gate_up(1));
  const Model a(plain.path()), b(fused.path());
  for (int e = 0; e < 8; ++e) {
    EXPECT_EQ(floats(a.mapped_expert(1, e).gate), floats(b.mapped_expert(1, e).gate));
    EXPECT_EQ(floats(a.mapped_expert(1, e).up), floats(b.mapped_expert(1, e).up));
  }
  EXPECT_EQ(b.experts()[1].gate.expert_stride, 2 * b.experts()[1].gate.expert_bytes);
  EXPECT_EQ(a.expert_bytes(), b.expert_bytes());
}

TEST(Model, FusedAttentionIsCutIntoQKV) {
  TinyModel tiny("qwen3next");
  const TemporaryModel plain(tiny), fused(tiny.fuse_attention(3));
  const Model a(plain.path()), b(fused.path());
  EXPECT_EQ(floats(a.weights().layers[3].attention.q), floats(b.weights().layers[3].attention.q));
  EXPECT_EQ(floats(a.weights().layers[3].attention.k), floats(b.weights().layers[3].attention.k));
  EXPECT_EQ(floats(a.weights().layers[3].attention.v), floats(b.weights().layers[3].attention.v));
}

TEST(Model, TiedOutputIsTheEmbeddingAndCountsOnce) {
  TinyModel tiny("qwen3next");
  const TemporaryModel plain(tiny), tied(tiny.tie_output());
  const Model a(plain.path()), b(tied.path());
  EXPECT_EQ(b.weights().output.data, b.weights().token_embd.data);
  EXPECT_EQ(a.dense_bytes() - b.dense_bytes(), a.weights().output.bytes());
}

TEST(Model, MtpBlocksAreIgnored) {
  TinyModel tiny("qwen35moe");
  const TemporaryModel plain(tiny), with(tiny.add_mtp_block());
  const Model a(plain.path()), b(with.path());
  EXPECT_EQ(b.config().n_layers, 4);
  EXPECT_EQ(a.dense_bytes(), b.dense_bytes());
  EXPECT_EQ(a.expert_bytes(), b.expert_bytes());
}

TEST(Model, EveryTensorIsRequired) {
  for (const char* architecture : {"qwen3next", "qwen35moe", "qwen3moe"}) {
    const TinyModel whole(architecture);
    for (const TinyModel::Tensor& tensor : whole.tensors) {
      if (tensor.name == "output.weight") continue;
      TinyModel part = whole;
      part.remove(tensor.name);
      const TemporaryModel file(part);
      EXPECT_THAT(
          [&] { Model(file.path()); },
          ThrowsMessage<Error>(AllOf(HasSubstr(file.path()), HasSubstr(tensor.name), HasSubstr("missing"))))
          << architecture << ' ' << tensor.name;
    }
  }
}

TEST(Model, EveryShapeIsChecked) {
  for (const char* architecture : {"qwen3next", "qwen35moe", "qwen3moe"}) {
    const TinyModel whole(architecture);
    for (const TinyModel::Tensor& tensor : whole.tensors) {
      if (tensor.name == "token_embd.weight") continue;  // its rows are the vocabulary's size
      TinyModel wrong = whole;
      wrong.remove(tensor.name);
      std::vector<uint64_t> shape = tensor.shape;
      shape.back() += 1;
      wrong.add(tensor.name, shape);
      const TemporaryModel file(wrong);
      EXPECT_THAT([&] { Model(file.path()); },
                  ThrowsMessage<Error>(AllOf(HasSubstr(tensor.name), HasSubstr("shape"))))
          << architecture << ' ' << tensor.name;
    }
  }
}

// What llama.cpp would apply and we would not: a bias, a scale, frequency factors, a tensor of another
// architecture, the older layout beside the newer.
TEST(Model, UnknownTensorsAreRefusedByName) {
  for (const char* name :
       {"blk.3.attn_q.bias", "blk.0.ffn_gate_exps.scale", "rope_freqs.weight", "blk.1.ssm_alpha.weight",
        "blk.0.attn_qkv.input_scale", "blk.4.attn_norm.weight"}) {
    TinyModel tiny("qwen3next");
    tiny.add(name, {32});
    const TemporaryModel file(tiny);
    EXPECT_THAT(
        [&] { Model(file.path()); },
        ThrowsMessage<Error>(AllOf(HasSubstr(name), HasSubstr("unknown for architecture qwen3next"))));
  }
  TinyModel both("qwen3next");
  both.add("blk.0.ssm_in.weight", {TinyModel::kEmbd, TinyModel::kConvDim + TinyModel::kValueDim});
  const TemporaryModel file(both);
  EXPECT_THAT([&] { Model(file.path()); }, ThrowsMessage<Error>(HasSubstr("blk.0.attn_")));
}

}  // namespace
}  // namespace redlite::model
