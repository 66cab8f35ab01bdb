#include "base/bus_error.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "../support/temporary_folder.h"
#include "base/file.h"

namespace redlite {
namespace {

TEST(BusErrorDeathTest, ATruncatedMappingIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  std::ofstream(path) << std::string(1 << 20, 'x');
  const MappedFile file(path);
  std::filesystem::resize_file(path, 4096);
  EXPECT_EXIT(
      {
        report_bus_errors();
        // Past the page at which the file ends now.
        const volatile std::byte byte = file.bytes()[100'000];
        ::_exit(byte == std::byte{0} ? 3 : 4);
      },
      ::testing::ExitedWithCode(1),
      "redlite: .*/model.gguf: cannot read at offset 100000: the file became shorter while it was in use");
}

}  // namespace
}  // namespace redlite
