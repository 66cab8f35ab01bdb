#include "convert/convert.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "../support/temporary_folder.h"
#include "base/error.h"
#include "gguf/writer.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace redlite::convert {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<float> decoded(const gguf::File& file, std::string_view name) {
  const gguf::TensorInfo& tensor = *file.find(name);
  const quant::TypeInfo& type = quant::info(tensor.type);
  std::vector<float> values(tensor.bytes / type.block_bytes * type.block_values);
  quant::decode(tensor.type, file.data(tensor).data(), values.data(), values.size());
  return values;
}

class Convert : public ::testing::Test {
 protected:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    quant::Type type;
  };

  Convert() {
    write(source_, kTensors, [](gguf::Writer& writer) {
      writer.add("general.architecture", std::string("qwen3next"));
      writer.add("general.file_type", uint32_t{15});
      writer.add("tokenizer.ggml.tokens", gguf::make_array(std::vector<std::string>{"a", "b"}));
    });
  }

  /// Weights are made of finite, small numbers, whatever the type: scales of blocks are F16 near 2^-7
  /// (0x20..).
  static void write(const std::string& path, const std::vector<Tensor>& tensors,
                    const std::function<void(gguf::Writer&)>& add_metadata) {
    gguf::Writer writer(path, 64);
    add_metadata(writer);
    for (const Tensor& t : tensors) writer.add_tensor(t.name, t.shape, t.type);
    writer.begin_data();
    uint32_t seed = 1;
    for (const Tensor& t : tensors) {
      uint64_t n = 1;
      for (const uint64_t length : t.shape) n *= length;
      std::vector<std::byte> bytes(quant::row_bytes(t.type, n));
      for (std::byte& b : bytes) b = static_cast<std::byte>((seed = seed * 1664525 + 1013904223) >> 27);
      if (quant::can_encode(t.type)) {
        std::vector<float> values(n);
        for (float& v : values)
          v = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-24f - 0.5f;
        EXPECT_TRUE(quant::encode(t.type, values.data(), bytes.data(), n));
      }
      writer.write(bytes);
    }
    writer.finish();
  }

  const std::vector<Tensor> kTensors = {
      {"token_embd.weight", {256, 40}, quant::Type::Q4_K},
      {"blk.0.attn_norm.weight", {256}, quant::Type::F32},
      {"blk.0.odd_norm.weight", {32, 2}, quant::Type::F16},
      {"blk.0.ffn_gate_inp.weight", {256, 4}, quant::Type::F16},
      {"blk.0.ssm_conv1d.weight", {4, 64}, quant::Type::F32},
      {"blk.0.ssm_a", {32}, quant::Type::F32},
      {"blk.0.ffn_up_exps.weight", {256, 64, 4}, quant::Type::IQ2_XS},
      {"blk.0.ffn_down_exps.weight", {64, 256, 4}, quant::Type::Q8_0},
      {"blk.0.uneven.weight", {48, 256}, quant::Type::F32},
      {"large.weight", {1024, 1030}, quant::Type::MXFP4},  // several pieces, the last one short
  };
  testing::TemporaryFolder folder_;
  const std::string source_ = folder_ / "source.gguf";
  const std::string out_ = folder_ / "out.gguf";
};

TEST_F(Convert, ToF32IsTheDecodedModel) {
  const gguf::File source(source_);
  const Result result = convert(source, out_, quant::Type::F32);
  const gguf::File out(out_);
  EXPECT_EQ(result.n_tensors, 10);
  EXPECT_EQ(result.n_converted, 6);
  EXPECT_EQ(result.n_fallback, 0);
  EXPECT_EQ(result.bytes, std::filesystem::file_size(out_));
  ASSERT_EQ(out.tensors().size(), kTensors.size());
  for (size_t i = 0; i < kTensors.size(); ++i) {
    const gguf::TensorInfo& tensor = out.tensors()[i];
    EXPECT_EQ(tensor.name, kTensors[i].name);
    EXPECT_EQ(tensor.shape, kTensors[i].shape);
    EXPECT_EQ(tensor.type, quant::Type::F32);
    EXPECT_EQ(decoded(out, tensor.name), decoded(source, tensor.name)) << tensor.name;
  }
}

TEST_F(Convert, MetadataIsKeptButForTheContainer) {
  convert(gguf::File(source_), out_, quant::Type::Q8_0);
  const gguf::File out(out_);
  EXPECT_EQ(out.get_string("general.architecture"), "qwen3next");
  EXPECT_EQ(out.get_strings("tokenizer.ggml.tokens"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(out.get_uint("general.file_type"), 7u);
  EXPECT_EQ(out.get_uint("general.quantization_version"), 2u);
  EXPECT_EQ(out.find_value("general.alignment"), nullptr);
  convert(gguf::File(source_), out_, quant::Type::F16);
  EXPECT_EQ(gguf::File(out_).get_uint("general.file_type"), 1u);
}

TEST_F(Convert, ToQ8_0LeavesSmallTensorsAndFallsBackToF16) {
  const gguf::File source(source_);
  const Result result = convert(source, out_, quant::Type::Q8_0);
  EXPECT_EQ(result.n_fallback, 1);
  const gguf::File out(out_);
  const auto type = [&](std::string_view name) { return quant::name(out.find(name)->type); };
  EXPECT_EQ(type("token_embd.weight"), "Q8_0");
  EXPECT_EQ(type("blk.0.ffn_up_exps.weight"), "Q8_0");
  EXPECT_EQ(type("large.weight"), "Q8_0");
  EXPECT_EQ(type("blk.0.uneven.weight"), "F16");
  for (const char* name : {"blk.0.attn_norm.weight", "blk.0.odd_norm.weight", "blk.0.ffn_gate_inp.weight",
                           "blk.0.ssm_conv1d.weight", "blk.0.ssm_a"}) {
    EXPECT_EQ(type(name), "F32") << name;
    EXPECT_EQ(decoded(out, name), decoded(source, name));
  }
  // What is Q8_0 already is not rounded again.
  const auto before = source.data(*source.find("blk.0.ffn_down_exps.weight"));
  const auto after = out.data(*out.find("blk.0.ffn_down_exps.weight"));
  ASSERT_EQ(before.size(), after.size());
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size()), 0);
  // The rest is what encoding the decoded values gives.
  const std::vector<float> values = decoded(source, "large.weight");
  std::vector<std::byte> expected(quant::row_bytes(quant::Type::Q8_0, values.size()));
  ASSERT_TRUE(quant::encode(quant::Type::Q8_0, values.data(), expected.data(), values.size()));
  const auto large = out.data(*out.find("large.weight"));
  EXPECT_TRUE(std::ranges::equal(large, expected));
}

TEST_F(Convert, MergesSplitModels) {
  for (uint16_t i = 0; i < 2; ++i) {
    write(folder_ / fmt::format("s-0000{}-of-00002.gguf", i + 1),
          {{fmt::format("t{}.weight", i), {32, 8}, quant::Type::F16}}, [&](gguf::Writer& writer) {
            writer.add("split.no", i);
            writer.add("split.count", uint16_t{2});
            writer.add("split.tensors.count", int32_t{2});
          });
  }
  const gguf::File source(folder_ / "s-00002-of-00002.gguf");
  convert(source, out_, quant::Type::F32);
  const gguf::File out(out_);
  EXPECT_EQ(out.shards().size(), 1u);
  EXPECT_EQ(out.find_value("split.count"), nullptr);
  EXPECT_EQ(out.tensors().size(), 2u);
  EXPECT_EQ(decoded(out, "t1.weight"), decoded(source, "t1.weight"));
  EXPECT_THAT([&] { convert(source, folder_ / "s-00001-of-00002.gguf", quant::Type::F32); },
              ThrowsMessage<Error>(HasSubstr("this is the model being read")));
}

TEST_F(Convert, NeverOverwritesItsInput) {
  std::filesystem::create_symlink(source_, folder_ / "link.gguf");
  const gguf::File source(source_);
  for (const std::string& path : {source_, folder_ / "link.gguf", folder_ / "./source.gguf"}) {
    EXPECT_THAT([&] { convert(source, path, quant::Type::F32); },
                ThrowsMessage<Error>(HasSubstr("this is the model being read")));
  }
}

TEST_F(Convert, NamesTheTensorThatDoesNotFitAndLeavesNoFile) {
  {
    gguf::Writer writer(folder_ / "big.gguf");
    writer.add_tensor("big.weight", {32, 2}, quant::Type::F32);
    writer.begin_data();
    const std::vector<float> values(64, 1e6f);
    writer.write(std::as_bytes(std::span(values)));
    writer.finish();
  }
  const gguf::File source(folder_ / "big.gguf");
  EXPECT_THAT([&] { convert(source, out_, quant::Type::F16); },
              ThrowsMessage<Error>(HasSubstr("tensor 'big.weight' holds a value that F16 cannot represent")));
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_NO_THROW(convert(source, out_, quant::Type::Q8_0));
}

}  // namespace
}  // namespace redlite::convert
