#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace redlite::testing {

/// A folder that is this process's and this object's own, removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = fmt::format("{}/redlite_test.{}.{}", ::testing::TempDir(), ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace redlite::testing
