#include <gmock/gmock.h>

#include "base/error.h"
#include "gguf/gguf.h"

namespace redlite::gguf {
namespace {

TEST(File, ReadsTheDemoModel) {
  const File file(REDLITE_DEMO_MODEL);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.get_string("general.architecture"), "qwen3next");
  const TensorInfo* embedding = file.find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(file.data(*embedding).size(), embedding->bytes);
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens")->size(), embedding->shape[1]);
  EXPECT_EQ(file.find("no.such.tensor"), nullptr);
  EXPECT_EQ(file.get_uint("no.such.key"), std::nullopt);
  EXPECT_THROW(file.get_uint("general.architecture"), Error);
}

}  // namespace
}  // namespace redlite::gguf
