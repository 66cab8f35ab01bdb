#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "../support/temporary_folder.h"
#include "base/file.h"

namespace redlite {
namespace {

using redlite::testing::TemporaryFolder;

/// A mapped file of a few huge pages of known bytes.
class HugePagesTest : public ::testing::Test {
 protected:
  static constexpr size_t kBlocks = 4;

  HugePagesTest() {
    const auto begin = reinterpret_cast<uintptr_t>(file_.bytes().data());
    offset_ = (begin + kHugePage - 1) / kHugePage * kHugePage - begin;
    block_ = file_.bytes().data() + offset_;
  }
  static std::vector<std::byte> some_bytes() {
    std::vector<std::byte> bytes(kBlocks * kHugePage);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 12));
    return bytes;
  }
  static std::string written(std::string path, const std::vector<std::byte>& bytes) {
    write_file_atomically(path, bytes);
    return path;
  }
  bool unchanged() const { return std::ranges::equal(file_.bytes(), bytes_); }

  TemporaryFolder folder_;
  std::vector<std::byte> bytes_ = some_bytes();
  std::string path_ = written(folder_ / "weights", bytes_);
  MappedFile file_{path_};
  size_t offset_;           ///< of the block in the file
  const std::byte* block_;  ///< the first whole one of the mapping
};

TEST_F(HugePagesTest, CopyKeepsTheBytes) {
  if (!huge_pages_available()) GTEST_SKIP() << "no huge pages on this system";
  ASSERT_TRUE(copy_to_huge_page(block_));
  EXPECT_TRUE(unchanged());
  // A copy indeed: what happens to the file does not reach it.
  const std::byte other{0x5a};
  std::vector<std::byte> changed(bytes_.size(), other);
  const File now(path_);
  FILE* out = std::fopen(path_.c_str(), "r+b");
  ASSERT_NE(out, nullptr);
  std::fwrite(changed.data(), 1, changed.size(), out);
  std::fclose(out);
  EXPECT_EQ(std::memcmp(block_, bytes_.data() + offset_, kHugePage), 0);
  EXPECT_EQ(block_[kHugePage], other);
}

TEST_F(HugePagesTest, ReadersSeeTheSameBytesMeanwhile) {
  if (!huge_pages_available()) GTEST_SKIP() << "no huge pages on this system";
  std::atomic<bool> done = false, same = true;
  std::thread reader([&] {
    while (!done) {
      if (!unchanged()) same = false;
    }
  });
  for (int i = 0; i < 20; ++i) {
    drop_from_page_cache(block_, file_.file().descriptor(), offset_);
    populate(block_);
    const std::byte* next = block_ + kHugePage * static_cast<size_t>(1 + i % 2);
    EXPECT_TRUE(copy_to_huge_page(next));
  }
  done = true;
  reader.join();
  EXPECT_TRUE(same);
}

TEST(HugeFloats, AreZero) {
  HugeFloats floats(kHugePage, "a test");
  EXPECT_EQ(floats.size(), kHugePage);
  EXPECT_TRUE(std::ranges::all_of(floats.span(), [](float x) { return x == 0; }));
  floats.data()[kHugePage - 1] = 1;
}

}  // namespace
}  // namespace redlite
