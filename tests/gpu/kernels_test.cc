#include <gmock/gmock.h>

#include "gpu/device.h"
#include "gpu/selftest/selftest.h"

namespace redlite::gpu {
namespace {

TEST(Kernels, PassTheSelftestOnTheEmulator) {
  const auto device = open_emulator({.seed = 7});
  int groups = 0;
  kernel_selftest(*device, 7, "", [&](const SelftestLine& line) {
    ++groups;
    EXPECT_GT(line.cases, 0) << line.name;
    EXPECT_EQ(line.failures, 0) << line.name << ": " << line.first_failure;
  });
  EXPECT_GT(groups, 40);
}

}  // namespace
}  // namespace redlite::gpu
