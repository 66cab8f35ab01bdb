// Speeds are whatever they are; what is tested is that they come from the work that was asked for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "../support/temporary_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "machine/describe.h"
#include "machine/disk.h"
#include "machine/memory_bandwidth.h"

namespace redlite::machine {
namespace {

using ::testing::HasSubstr;

/// Message of the Error that an action throws; empty if it throws none.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(MemoryBandwidth, IsSomethingAMachineCanHave) {
  for (const int threads : {1, 3}) {
    const double speed = memory_bandwidth(threads, 2, size_t{32} << 20);
    EXPECT_GT(speed, 50e6) << threads;
    EXPECT_LT(speed, 50e12) << threads << ": nothing was read";
  }
}

TEST(Disk, ReadsAFileOfAnySizeFromOneBlockUp) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "file";
  for (const size_t size : {size_t{4096}, size_t{3 * 4096 + 17}, size_t{1} << 20}) {
    write_file_atomically(path, std::vector<std::byte>(size));
    for (const int depth : {1, 128}) {
      const DiskSpeed speed = random_read_speed(path, 4096, depth, 0.01);
      EXPECT_GT(speed.bytes_per_second, 0) << size << " " << depth;
      EXPECT_FALSE(speed.reader.empty());
    }
  }
}

TEST(Disk, SaysWhatCannotBeMeasured) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "file";
  write_file_atomically(path, std::vector<std::byte>(4095));
  EXPECT_THAT(error_of([&] { random_read_speed(path, 4096, 1, 0.01); }), HasSubstr("file: smaller than"));
  EXPECT_THAT(error_of([&] { random_read_speed(folder / "none", 4096, 1, 0.01); }), HasSubstr("none"));
}

TEST(Describe, FindsNamesAsProcWritesThem) {
  const std::string text = "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nmodel\t\t: 7\nodd\n: x\nempty:\n";
  EXPECT_EQ(detail::proc_value(text, "model name"), "Some CPU @ 3 GHz");
  EXPECT_EQ(detail::proc_value(text, "model"), "7");
  EXPECT_EQ(detail::proc_value(text, "empty"), "");
  EXPECT_EQ(detail::proc_value(text, "mode"), "");
}

TEST(Describe, KnowsThisMachine) {
  const Machine machine = describe();
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_GT(machine.cores, 0);
  EXPECT_GT(machine.memory_bytes, uint64_t{64} << 20);
  EXPECT_FALSE(machine.system.empty());
}

}  // namespace
}  // namespace redlite::machine
