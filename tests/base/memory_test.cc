#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace redlite {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class Cgroup : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/cgroup_test_" + std::to_string(::getpid());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(Cgroup, Version2TakesTheTightestOnTheWayUp) {
  write("/a/memory.max", std::to_string(900 * kMiB) + "\n");
  write("/a/memory.current", std::to_string(800 * kMiB) + "\n");
  write("/a/memory.stat", "anon 1\ninactive_file " + std::to_string(300 * kMiB) + "\nactive_file 0\n");
  write("/a/b/memory.max", "max\n");
  write("/a/b/memory.current", "0\n");
  const detail::CgroupMemory memory = detail::cgroup_memory("0::/a/b\n", root_);
  EXPECT_EQ(memory.limit, 900 * kMiB);
  EXPECT_EQ(memory.available, 400 * kMiB);  // page cache gives way
}

TEST_F(Cgroup, Version1) {
  write("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/memory/x/memory.limit_in_bytes", std::to_string(600 * kMiB) + "\n");
  write("/memory/x/memory.usage_in_bytes", std::to_string(100 * kMiB) + "\n");
  write("/memory/x/memory.stat",
        "active_file 1\ntotal_inactive_file " + std::to_string(20 * kMiB) + "\ntotal_active_file 0\n");
  const detail::CgroupMemory memory = detail::cgroup_memory("5:devices:/\n4:cpu,memory:/x\n0::/\n", root_);
  EXPECT_EQ(memory.limit, 600 * kMiB);
  EXPECT_EQ(memory.available, 520 * kMiB);
}

TEST_F(Cgroup, NoneOrNonsense) {
  EXPECT_FALSE(detail::cgroup_memory("", root_).limit);
  EXPECT_FALSE(detail::cgroup_memory("nonsense\n0:\n0::\n0::relative\n", root_).limit);
  write("/memory.max", "many\n");
  EXPECT_FALSE(detail::cgroup_memory("0::/\n", root_).limit);
}

TEST(Memory, OfThisProcess) {
  EXPECT_GT(available_memory(), 0u);
  const uint64_t before = resident_memory();
  EXPECT_GT(before, 0u);
  std::vector<char> touched(64 * kMiB, 1);
  EXPECT_GE(peak_resident_memory(), before + 60 * kMiB);
  EXPECT_EQ(touched[kMiB], 1);
}

#ifdef __linux__
TEST(Memory, ThePeakStartsAnew) {
  void* const memory =
      ::mmap(nullptr, 64 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::munmap(memory, 64 * kMiB);
  const uint64_t high = peak_resident_memory();
  reset_peak_resident_memory();
  EXPECT_LE(peak_resident_memory(), high - 32 * kMiB);
}
#endif

}  // namespace
}  // namespace redlite
