#include <gmock/gmock.h>

#include <filesystem>
#include <functional>

#include "../support/temporary_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace redlite::gguf {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Part {
  uint16_t index;
  uint16_t count = 3;
  int32_t tensors = 4;
  std::vector<std::string> names;
};

/// Part 0 has the metadata; every tensor holds its own first letter.
void write_part(const std::string& path, const Part& part) {
  Writer writer(path, part.index == 1 ? 64 : 32);
  if (part.index == 0) writer.add("general.architecture", std::string("qwen3next"));
  writer.add("split.no", part.index);
  writer.add("split.count", part.count);
  writer.add("split.tensors.count", part.tensors);
  for (const std::string& name : part.names) writer.add_tensor(name, {5}, quant::Type::F32);
  writer.begin_data();
  for (const std::string& name : part.names) {
    writer.write(std::vector<std::byte>(20, static_cast<std::byte>(name[0])));
  }
  writer.finish();
}

class Split : public ::testing::Test {
 protected:
  Split() {
    write_part(path(0), {.index = 0, .names = {}});
    write_part(path(1), {.index = 1, .names = {"a", "b", "c"}});
    write_part(path(2), {.index = 2, .names = {"d"}});
  }

  std::string path(int index) const {
    return folder_ / ("model-0000" + std::to_string(index + 1) + "-of-00003.gguf");
  }
  void expect_error(int named, const std::string& message) const {
    EXPECT_THAT([&] { File file(path(named)); }, ThrowsMessage<Error>(HasSubstr(message)));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Split, NamingAnyPartOpensAll) {
  for (int named = 0; named < 3; ++named) {
    const File file(path(named));
    EXPECT_EQ(file.path(), path(named));
    EXPECT_EQ(file.shards().size(), 3u);
    EXPECT_EQ(file.get_string("general.architecture"), "qwen3next");
    EXPECT_EQ(file.tensors().size(), 4u);
    for (const char* name : {"a", "b", "c", "d"}) {
      const TensorInfo* tensor = file.find(name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->shard, name[0] == 'd' ? 2u : 1u);
      for (const std::byte b : file.data(*tensor)) ASSERT_EQ(b, static_cast<std::byte>(name[0]));
      EXPECT_EQ(file.shards()[tensor->shard].bytes().data() + tensor->offset, file.data(*tensor).data());
    }
  }
}

TEST_F(Split, AMissingPartIsNamed) {
  std::filesystem::remove(path(2));
  expect_error(0, path(2) + ": cannot open");
  expect_error(1, path(2) + ": cannot open");
}

TEST_F(Split, ATruncatedPartIsNamed) {
  std::filesystem::resize_file(path(1), std::filesystem::file_size(path(1)) - 60);
  expect_error(0, path(1) + ": tensor 'c' needs 20 bytes");
}

TEST_F(Split, PartsMustAgree) {
  std::filesystem::copy_file(path(1), path(2), std::filesystem::copy_options::overwrite_existing);
  expect_error(0, path(2) + ": this should be part 3 of 3 of the split model, but says it is part 2 of 3");
  write_part(path(2), {.index = 2, .count = 4, .names = {"d"}});
  expect_error(0, "but says it is part 3 of 4");
  write_part(path(2), {.index = 5, .names = {"d"}});
  expect_error(0, path(2) + ": split.count is 3, but split.no is 5");
  write_part(path(2), {.index = 2, .names = {"d", "a"}});
  expect_error(0, path(2) + ": there are two tensors named 'a'");
  write_part(path(2), {.index = 2, .names = {"d", "e"}});
  expect_error(1, "3 parts of this split model hold 5 tensors, but split.tensors.count says 4");
}

TEST_F(Split, ARenamedPartSaysWhatItShouldBeCalled) {
  std::filesystem::rename(path(1), folder_ / "renamed.gguf");
  EXPECT_THAT([&] { File file(folder_ / "renamed.gguf"); },
              ThrowsMessage<Error>(HasSubstr("part 2 of 3 of a split model, but its name does not end in "
                                             "-00002-of-00003.gguf")));
}

TEST_F(Split, OneOfOneIsASingleFile) {
  write_part(folder_ / "one.gguf", {.index = 0, .count = 1, .tensors = 1, .names = {"x"}});
  EXPECT_EQ(File(folder_ / "one.gguf").tensors().size(), 1u);
}

TEST_F(Split, KeysOfTheWrongTypeAreRefused) {
  Writer writer(folder_ / "odd.gguf");
  writer.add("split.count", uint32_t{2});
  writer.begin_data();
  writer.finish();
  EXPECT_THAT([&] { File file(folder_ / "odd.gguf"); },
              ThrowsMessage<Error>(HasSubstr("split.count must be a u16, not u32")));
}

}  // namespace
}  // namespace redlite::gguf
