#include "session/state_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "support/temporary_folder.h"
#include "synthetic_state.h"

namespace redlite::session {
namespace {

using redlite::testing::TemporaryFolder;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class StateFile : public ::testing::Test {
 protected:
  StateFile() : path_(folder_ / "a.rlstate") {
    const auto state = synthetic_state(40, 3);
    head_ = {state->tokens, {20, 40}};
    const std::vector<std::span<const std::byte>> marks = {state->marks[0].mark->bytes(),
                                                           state->marks[1].mark->bytes()};
    write_state_file(path_, synthetic_shape(), head_, state->positions.span(), marks);
  }
  /// Refused, or read as it was written: not every bit of a compressed stream means something.
  void expect_nothing_wrong(const std::string& bytes, const std::string& what) {
    std::ofstream(path_, std::ios::binary) << bytes;
    StateHead head;
    try {
      const StateContent content = read_state_file(path_, synthetic_shape(), head);
      EXPECT_TRUE(is_synthetic(head, content)) << what;
      ++accepted_;
    } catch (const Error& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with(path_)) << what;
    }
  }

  TemporaryFolder folder_;
  std::string path_;
  StateHead head_;
  int accepted_ = 0;
};

TEST_F(StateFile, ComesBackAsWritten) {
  const StateHead only_head = read_state_head(path_, synthetic_shape());
  EXPECT_EQ(only_head.tokens, head_.tokens);
  EXPECT_EQ(only_head.marks, head_.marks);
  StateHead head;
  const StateContent content = read_state_file(path_, synthetic_shape(), head);
  EXPECT_TRUE(is_synthetic(head, content));
  struct stat st {};
  ASSERT_EQ(::stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u) << "conversations are private";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1)
      << "a temporary is left";
}

TEST_F(StateFile, TruncatedAnywhereItIsRefused) {
  const std::string whole = read_text_file(path_);
  ASSERT_GT(whole.size(), 25000u);
  for (size_t n = 0; n < whole.size(); n += n < 300 ? 1 : 997)
    expect_nothing_wrong(whole.substr(0, n), std::to_string(n));
  expect_nothing_wrong(whole + '\0', "more");
  EXPECT_EQ(accepted_, 0);
}

TEST_F(StateFile, DamagedAnywhereItIsNeverReadWrongly) {
  const std::string whole = read_text_file(path_);
  for (size_t at = 0; at < whole.size(); at += at < 300 ? 1 : 499) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    expect_nothing_wrong(damaged, std::to_string(at));
  }
  EXPECT_LE(accepted_, 2);
}

TEST_F(StateFile, OfAnotherShapeItIsForeign) {
  for (int i = 0; i < 4; ++i) {
    StateShape shape = synthetic_shape();
    ++*(i < 2 ? &shape.fingerprint[i] : i == 2 ? &shape.mark_bytes : &shape.position_bytes);
    EXPECT_THROW(read_state_head(path_, shape), ForeignState) << i;
  }
  StateShape shape = synthetic_shape();
  shape.capacity = 39;
  EXPECT_THAT([&] { read_state_head(path_, shape); },
              ThrowsMessage<Error>(EndsWith("a state of 40 tokens; the context holds 39")));
  shape = synthetic_shape();
  shape.n_vocab = 200;
  EXPECT_THAT([&] { read_state_head(path_, shape); },
              ThrowsMessage<Error>(HasSubstr("a state with a token 206")));
}

TEST_F(StateFile, WhatIsNoFileIsAnError) {
  EXPECT_THROW(read_state_head(folder_ / "none", synthetic_shape()), Error);
  EXPECT_THROW(read_state_head(folder_.path(), synthetic_shape()), Error);
  const auto write = [&](const std::string& path) {
    write_state_file(path, synthetic_shape(), {{1}, {}}, std::vector<std::byte>(512), {});
  };
  EXPECT_THROW(write(folder_ / "no/such/folder"), Error);
  write(folder_ / "small");
  EXPECT_EQ(read_state_head(folder_ / "small", synthetic_shape()).tokens.size(), 1u);
}

}  // namespace
}  // namespace redlite::session
