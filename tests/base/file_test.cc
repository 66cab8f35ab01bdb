#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace redlite {
namespace {

using ::testing::HasSubstr;

std::string temporary(const char* name) {
  return ::testing::TempDir() + name;
}

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(File, WritesAtomicallyAndReadsBack) {
  const std::string path = temporary("file_test.txt");
  const std::string text = "once upon a time";
  write_file_atomically(path, std::as_bytes(std::span(text)));
  EXPECT_EQ(read_text_file(path), text);
  write_file_atomically(path, {});
  EXPECT_EQ(read_text_file(path), "");
  const MappedFile empty(path);
  EXPECT_TRUE(empty.bytes().empty());
  std::filesystem::remove(path);
}

TEST(File, ErrorsSayWhatAndWhere) {
  EXPECT_THAT(error_of([] { File("/nonexistent/x"); }), HasSubstr("/nonexistent/x: cannot open"));
  EXPECT_THAT(error_of([] { File("/tmp"); }), HasSubstr("it is a directory"));
  EXPECT_THAT(error_of([] { write_file_atomically("/nonexistent/x", {}); }), HasSubstr("cannot create"));
  const std::string path = temporary("file_test_short.txt");
  const std::string text = "abc";
  write_file_atomically(path, std::as_bytes(std::span(text)));
  std::byte buffer[8];
  EXPECT_THAT(error_of([&] { File(path).read_exactly(1, buffer); }),
              HasSubstr("ends at offset 3, 6 bytes short"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace redlite
