#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "model/tiny_model.h"

namespace redlite::testing {

/// A tiny model in a file of its own, removed with the object.
class TemporaryModel {
 public:
  explicit TemporaryModel(const TinyModel& model) {
    static int count = 0;
    path_ = fmt::format("{}/redlite_tiny.{}.{}.gguf", ::testing::TempDir(), ::getpid(), count++);
    model.write(path_);
  }
  ~TemporaryModel() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace redlite::testing
