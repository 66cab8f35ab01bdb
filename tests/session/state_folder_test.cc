#include "session/state_folder.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <random>

#include "base/file.h"
#include "support/temporary_folder.h"
#include "synthetic_state.h"

namespace redlite::session {
namespace {

namespace fs = std::filesystem;
using model::Token;
using redlite::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Folder : public ::testing::Test {
 protected:
  std::unique_ptr<StateFolder> open(uint64_t most_bytes = 64 << 20) {
    return std::make_unique<StateFolder>(path_, synthetic_shape(), most_bytes,
                                         [this](const std::string& line) {
                                           const std::lock_guard lock(mutex_);
                                           log_.push_back(line);
                                         });
  }
  /// Everything in the folder, by what it is found for.
  static int check_all(StateFolder& folder) {
    int n = 0;
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<Token> prompt = synthetic_state(4000, kind)->tokens;
      for (int least = 0;;) {
        const std::optional<StateFolder::Found> found = folder.find(prompt, least);
        if (!found) break;
        const std::optional<StateFolder::Loaded> loaded = folder.load(*found);
        EXPECT_TRUE(loaded && is_synthetic(loaded->head, loaded->content));
        least = found->position;
        ++n;
      }
    }
    return n;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  TemporaryFolder parent_;
  std::string path_ = parent_ / "states";
  std::mutex mutex_;
  std::vector<std::string> log_;
};

TEST_F(Folder, KeepsStatesOverARestart) {
  {
    const auto folder = open();
    EXPECT_TRUE(folder->save(synthetic_state(100, 1), true));
    EXPECT_TRUE(folder->save(synthetic_state(200, 2), true));
    folder->flush();
    EXPECT_EQ(folder->size(), 2);
  }
  const auto folder = open();
  EXPECT_EQ(folder->size(), 2);
  std::vector<Token> prompt = synthetic_state(120, 1)->tokens;
  const auto whole = folder->find(prompt, 0);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->position, 100);
  const auto loaded = folder->load(*whole);
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(is_synthetic(loaded->head, loaded->content));
  EXPECT_FALSE(folder->find(prompt, 100)) << "nothing better";
  prompt.resize(70);
  EXPECT_EQ(folder->find(prompt, 0).value().position, 50) << "an earlier mark";
  prompt.resize(50);
  EXPECT_FALSE(folder->find(prompt, 0)) << "no logits for the last token";
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(Folder, AStateTakesThePlaceOfItsBeginning) {
  const auto folder = open();
  folder->save(synthetic_state(100, 1), true);
  folder->save(synthetic_state(100, 2), true);
  folder->save(synthetic_state(150, 1), true);
  folder->flush();
  EXPECT_EQ(folder->size(), 2);
  EXPECT_EQ(names().size(), 2u);
  EXPECT_EQ(folder->find(synthetic_state(200, 1)->tokens, 0).value().position, 150);
}

TEST_F(Folder, TheLeastRecentlyUsedGoFirst) {
  const auto folder = open(3 * 64 * 1024);
  for (const int kind : {1, 2, 3}) {
    folder->save(synthetic_state(100, kind), true);
    folder->flush();
  }
  EXPECT_EQ(folder->size(), 3);
  EXPECT_TRUE(folder->load(folder->find(synthetic_state(150, 1)->tokens, 0).value()));
  folder->save(synthetic_state(100, 4), true);
  folder->flush();
  EXPECT_TRUE(folder->find(synthetic_state(150, 1)->tokens, 0));
  EXPECT_FALSE(folder->find(synthetic_state(150, 2)->tokens, 0));
  EXPECT_LE(folder->bytes(), 3u * 64 * 1024);
  folder->save(synthetic_state(1000, 5), true);
  folder->flush();
  EXPECT_FALSE(folder->find(synthetic_state(1500, 5)->tokens, 0)) << "larger than the folder may be";
}

TEST_F(Folder, BadFilesAreALineInTheLog) {
  {
    const auto folder = open();
    for (const int kind : {1, 2, 3}) folder->save(synthetic_state(100, kind), true);
  }
  const std::vector<std::string> all = names();
  ASSERT_EQ(all.size(), 3u);
  std::string bytes = read_text_file(path_ + "/" + all[0]);
  fs::resize_file(path_ + "/" + all[0], 50);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] + 1);
  write_file_atomically(path_ + "/" + all[1], std::as_bytes(std::span(bytes)));  // its head is whole
  fs::create_directory(path_ + "/folder.rlstate");
  fs::create_symlink("/dev/zero", path_ + "/link.rlstate");
  write_file_atomically(path_ + "/notes.txt", {});

  const auto folder = open();
  EXPECT_THAT(log_, ElementsAre(HasSubstr(": no state file: 50 bytes; it is ignored")));
  int loaded = 0;
  for (const int kind : {1, 2, 3}) {
    if (const auto found = folder->find(synthetic_state(150, kind)->tokens, 0))
      loaded += folder->load(*found).has_value() ? 1 : 0;
  }
  EXPECT_EQ(loaded, 1);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("50 bytes"), HasSubstr("the state is damaged; it is ignored")));
  for (const int kind : {1, 2, 3}) {
    const auto found = folder->find(synthetic_state(150, kind)->tokens, 0);
    EXPECT_TRUE(!found || folder->load(*found));
  }
  EXPECT_EQ(log_.size(), 2u) << "not tried again";
}

TEST_F(Folder, AFileThatGoesAwayIsNoHarm) {
  const auto folder = open();
  folder->save(synthetic_state(100, 1), true);
  folder->flush();
  const auto found = folder->find(synthetic_state(150, 1)->tokens, 0);
  fs::remove(path_ + "/" + names()[0]);
  EXPECT_FALSE(folder->load(*found));
  EXPECT_FALSE(folder->find(synthetic_state(150, 1)->tokens, 0));
  EXPECT_EQ(log_.size(), 1u);
}

TEST_F(Folder, WhatCannotBeAFolderIsAnError) {
  path_ = parent_ / "file";
  write_file_atomically(path_, {});
  EXPECT_THROW(open(), Error);
  path_ = "/proc/states";
  EXPECT_THROW(open(), Error);
}

// Killed at any moment of writing, a process leaves whole states only.
TEST_F(Folder, SurvivesBeingKilledFiftyTimes) {
  std::mt19937 random(7);
  int checked = 0;
  for (int round = 0; round < 50; ++round) {
    const std::string seed = std::to_string(round);
    const char* const argv[] = {REDLITE_STATE_WRITER, path_.c_str(), seed.c_str(), nullptr};
    int pipe[2] = {};
    ASSERT_EQ(::pipe(pipe), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    pid_t child = 0;
    ASSERT_EQ(::posix_spawn(&child, argv[0], &actions, nullptr, const_cast<char* const*>(argv), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    char dots[3];
    for (size_t n = 0; n < sizeof(dots);) {  // one at least is written by now
      const ssize_t got = ::read(pipe[0], dots + n, sizeof(dots) - n);
      ASSERT_GT(got, 0) << "the writer ended by itself";
      n += static_cast<size_t>(got);
    }
    ::usleep(static_cast<useconds_t>(random() % 10000));
    ::kill(child, SIGKILL);
    ::close(pipe[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";

    const auto folder = open();
    checked += check_all(*folder);
    EXPECT_THAT(log_, IsEmpty());
    for (const std::string& name : names()) EXPECT_TRUE(name.ends_with(".rlstate")) << name << " is left";
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace redlite::session
