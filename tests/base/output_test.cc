#include "base/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace redlite {
namespace {

namespace fs = std::filesystem;

void write_half(const TemporaryName& name) {
  std::ofstream(name.text()) << "half";
}

TEST(TemporaryName, GoesUnlessRenamed) {
  const std::string path = ::testing::TempDir() + "temporary_name_test";
  std::string text;
  {
    const TemporaryName name(path);
    text = name.text();
    write_half(name);
    EXPECT_TRUE(fs::exists(text));
  }
  EXPECT_FALSE(fs::exists(text));
  {
    TemporaryName name(path);
    write_half(name);
    name.rename();
  }
  EXPECT_FALSE(fs::exists(text));
  EXPECT_TRUE(fs::remove(path));
}

TEST(TemporaryName, DoesNotStandForADeviceOrAFolder) {
  EXPECT_THROW(TemporaryName("/dev/null"), Error);
  EXPECT_THROW(TemporaryName("/tmp"), Error);
  EXPECT_THROW(TemporaryName(""), Error);
}

TEST(TemporaryNameDeathTest, SignalsThatEndTheProgramRemoveIt) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    // More at once than can be remembered are no error.
    const auto ended = [&] {
      const TemporaryName names[] = {TemporaryName(::testing::TempDir() + "temporary_a"),
                                     TemporaryName(::testing::TempDir() + "temporary_b"),
                                     TemporaryName(::testing::TempDir() + "temporary_c"),
                                     TemporaryName(::testing::TempDir() + "temporary_d"),
                                     TemporaryName(::testing::TempDir() + "temporary_e")};
      write_half(names[0]);
      write_half(names[1]);
      ::raise(signal);
    };
    EXPECT_EXIT(ended(), ::testing::KilledBySignal(signal), "");
    for (const fs::directory_entry& entry : fs::directory_iterator(::testing::TempDir()))
      EXPECT_THAT(entry.path().filename().string(), ::testing::Not(::testing::StartsWith("temporary_a.")));
  }
}

}  // namespace
}  // namespace redlite
