#include "base/file.h"
#include "base/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

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
  EXPECT_THAT(error_of([] { write_file_atomically("/nonexistent/x", {}); }),
              HasSubstr("there is no folder /nonexistent"));
  const std::string path = temporary("file_test_short.txt");
  const std::string text = "abc";
  write_file_atomically(path, std::as_bytes(std::span(text)));
  std::byte buffer[8];
  EXPECT_THAT(error_of([&] { File(path).read_exactly(1, buffer); }),
              HasSubstr("ends at offset 3, 6 bytes short"));
  std::filesystem::remove(path);
}

TEST(File, SpecialFilesAreWrittenAndNotReplaced) {
  const std::string target = temporary("file_test_target"), link = temporary("file_test_link");
  std::filesystem::remove(link);
  write_file_atomically(target, {});
  std::filesystem::create_symlink(target, link);
  const std::string text = "abc";
  write_file_atomically(link, std::as_bytes(std::span(text)));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_text_file(target), text);
  std::filesystem::remove(link);

  // Not with a real device: where the code is wrong and the user is root, it would be gone.
  ASSERT_EQ(::mkfifo(link.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { File{link}; }), HasSubstr("not a regular file"))
      << "without waiting for a writer";
  const int reader = ::open(link.c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(link, std::as_bytes(std::span(text)));
  EXPECT_TRUE(is_special_file(link));
  char got[4] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 3);
  EXPECT_EQ(std::string(got), text);
  ::close(reader);
  std::filesystem::remove(link);
  std::filesystem::remove(target);
}

TEST(File, OutputsAreCheckedBeforeTheWork) {
  const std::string in = temporary("file_test_in"), alias = temporary("file_test_alias");
  std::filesystem::remove(alias);
  write_file_atomically(in, {});
  std::filesystem::create_hard_link(in, alias);
  EXPECT_EQ(error_of([&] { check_output(in, {"", "/nonexistent/x"}); }), "no error");
  EXPECT_EQ(error_of([&] { check_output(in + ".new", {in}); }), "no error");
  EXPECT_EQ(error_of([] { check_output("/dev/null"); }), "no error");
  for (const std::string& other : {in, alias, temporary("./file_test_in")})
    EXPECT_THAT(error_of([&] { check_output(in, {other}); }), HasSubstr("name another file")) << other;
  const std::string neither = temporary("file_test_neither");
  EXPECT_THAT(error_of([&] { check_output(neither, {temporary("./file_test_neither")}); }),
              HasSubstr("name another file"));
  EXPECT_THAT(error_of([] { check_output(""); }), HasSubstr("is empty"));
  EXPECT_THAT(error_of([] { check_output(::testing::TempDir()); }), HasSubstr("it is a directory"));
  EXPECT_THAT(error_of([] { check_output("/nonexistent/x"); }), HasSubstr("there is no folder /nonexistent"));
  EXPECT_THAT(error_of([&] { check_output(in + "/x"); }), HasSubstr("there is no folder"));
  std::filesystem::remove(in);
  std::filesystem::remove(alias);
}

}  // namespace
}  // namespace redlite
