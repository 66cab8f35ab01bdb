// redlite chat as people meet it: at a terminal (a pseudo one) and in a pipe.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "support/temporary_folder.h"

namespace redlite {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

const std::string kDemo = REDLITE_DEMO_MODEL;
/// What is shown when a message or its next line is waited for: that the terminal tells of pasted text,
/// first.
const std::string kPrompt = "\x1b[?2004h> ", kMore = "\x1b[?2004h... ";

/// The chat at a terminal of 80 columns, in a home of its own.
class Terminal {
 public:
  Terminal(const TemporaryFolder& home, std::vector<std::string> arguments) {
    std::vector<std::string> words{REDLITE_BINARY, "chat"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    struct winsize size {
      24, 80, 0, 0
    };
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::setenv("HOME", home.path().c_str(), 1);
      ::setenv("TERM", "xterm", 1);
      ::execv(argv[0], argv.data());
      std::_Exit(127);
    }
  }
  ~Terminal() {
    ::close(terminal_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const {
    ASSERT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  /// Reads on until `text` was shown, which must happen within ten seconds; returns what was shown since the
  /// last call.
  std::string until(const std::string& text) {
    std::string out;
    if (!shows(text, std::chrono::seconds(10), out))
      ADD_FAILURE() << "never shown: " << text << "\nbut: " << out;
    return out;
  }
  /// The same with a limit of one's own; false: not shown, `out` is what was.
  bool shows(const std::string& text, std::chrono::milliseconds limit, std::string& out) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (;;) {
      if (const size_t at = shown_.find(text); at != std::string::npos) {
        out = shown_.substr(0, at + text.size());
        shown_.erase(0, at + text.size());
        return true;
      }
      struct pollfd wait {
        terminal_, POLLIN, 0
      };
      char buffer[4096];
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) <= 0) break;
      const ssize_t n = ::read(terminal_, buffer, sizeof(buffer));
      if (n <= 0) break;
      shown_.append(buffer, static_cast<size_t>(n));
    }
    out = shown_;
    return false;
  }
  /// The exit status, after typing `keys`; -1: the program does not end within ten seconds.
  int end_with(const std::string& keys) {
    int status = 0;
    type(keys);
    for (int i = 0; i < 1000; ++i) {
      if (::waitpid(pid_, &status, WNOHANG) != 0) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::string out;
    shows("\x1b[?2004l", std::chrono::milliseconds(100), out);
    ADD_FAILURE() << "still there, and shows: " << ::testing::PrintToString(out);
    return -1;
  }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
};

struct Outcome {
  int status;
  std::string out, err;
};

/// The chat with its input from a pipe.
Outcome piped(const TemporaryFolder& home, const std::string& input, const std::string& arguments) {
  write_file_atomically(home / "in", std::as_bytes(std::span(input)));
  const int status = std::system(fmt::format("HOME='{0}' '{1}' chat {2} <'{0}/in' >'{0}/out' 2>'{0}/err'",
                                             home.path(), REDLITE_BINARY, arguments)
                                     .c_str());
  return {WEXITSTATUS(status), read_text_file(home / "out"), read_text_file(home / "err")};
}

TEST(ChatAtATerminal, AnswersAndObeysCommands) {
  const TemporaryFolder home;
  Terminal chat(home, {kDemo, "-n", "12", "--seed", "1"});
  EXPECT_THAT(chat.until(kPrompt), AllOf(HasSubstr("Red Lite Tales 32M"), HasSubstr("/help")));
  chat.type("/help\r");
  const std::string help = chat.until(kPrompt);
  for (const char* command :
       {"/reset", "/system", "/regenerate", "/undo", "/save", "/load", "/stats", "/set", "/exit"})
    EXPECT_THAT(help, HasSubstr(command));
  chat.type("Tell me of a fox.\r");
  EXPECT_THAT(chat.until(kPrompt), HasSubstr("(cut at max_tokens 12)"));
  chat.type("/stats\r");
  EXPECT_THAT(chat.until(kPrompt), HasSubstr("prompt         18 tokens"));
  chat.type("/set temp hot\r");
  EXPECT_THAT(chat.until(kPrompt), HasSubstr("'hot' is not a number from 0 to 100"));
  chat.type("/frob\r");
  EXPECT_THAT(chat.until(kPrompt), HasSubstr("there is no '/frob'"));
  EXPECT_EQ(chat.end_with("/exit\r"), 0);
}

TEST(ChatAtATerminal, CtrlCStopsAnAnswerAndGivesUpALineButNotTheProgram) {
  const TemporaryFolder home;
  Terminal chat(home, {kDemo, "--temp", "0", "--backend", "reference"});  // slow: there is time to stop it
  chat.until(kPrompt);
  chat.type("half a line\x03");
  EXPECT_THAT(chat.until(kPrompt), HasSubstr("^C"));
  chat.type("Tell me of a fox.\r");
  std::string shown;
  // The answer begins some time after the line was entered.
  for (int i = 0; i < 50 && !chat.shows("(stopped", std::chrono::milliseconds(200), shown); ++i)
    chat.type("\x03");
  EXPECT_THAT(shown, EndsWith("(stopped"));
  chat.until(kPrompt);
  chat.type("/set\r");  // one Ctrl-C more may have come before it
  chat.until("repeat_penalty");
  chat.until(kPrompt);
  EXPECT_EQ(chat.end_with("\x04"), 0);
}

TEST(ChatAtATerminal, MessagesOfSeveralLinesAndHistory) {
  const TemporaryFolder home;
  {
    Terminal chat(home, {kDemo, "-n", "1"});
    chat.until(kPrompt);
    chat.type("one\\\r");
    chat.until(kMore);
    chat.type("two\r");
    chat.until(kPrompt);
    chat.type("three\x1b\rfour\r");  // Alt-Enter
    chat.until(kPrompt);
    chat.type("\x1b[200~five\rsix \x1b[201~\r");  // pasted
    chat.until(kPrompt);
    chat.type("\"\"\"seven\r");
    chat.until(kMore);
    chat.type("eight\"\"\"\r");
    chat.until(kPrompt);
    chat.type("/save " + (home / "said.json") + "\r");
    chat.until("Saved 8 messages");
    chat.until(kPrompt);
    EXPECT_EQ(chat.end_with("\x04"), 0);
  }
  const auto messages = nlohmann::json::parse(read_text_file(home / "said.json"))["messages"];
  EXPECT_EQ(messages[0]["content"], "one\ntwo");
  EXPECT_EQ(messages[2]["content"], "three\nfour");
  EXPECT_EQ(messages[4]["content"], "five\nsix ");
  EXPECT_EQ(messages[6]["content"], "seven\neight");

  struct stat history {};
  ASSERT_EQ(::stat((home / ".redlite/chat_history").c_str(), &history), 0);
  EXPECT_EQ(history.st_mode & 0777, 0600u);
  Terminal again(home, {kDemo, "-n", "1"});
  again.until(kPrompt);
  again.type("\x1b[A\x1b[A");  // before /save: seven, eight
  again.until("eight");
  again.type("\r");
  again.until(kPrompt);
  again.type("/save " + (home / "again.json") + "\r");
  again.until("Saved 2 messages");
  EXPECT_EQ(nlohmann::json::parse(read_text_file(home / "again.json"))["messages"][0]["content"],
            "seven\neight");
}

TEST(ChatInAPipe, PlainLinesInPlainTextOut) {
  const TemporaryFolder home;
  const Outcome run = piped(home, "Tell me of a fox.\n\nGo\\\non.\n/stats\n/save " + (home / "c.json") + "\n",
                            "'" + kDemo + "' --temp 0 -n 10");
  EXPECT_EQ(run.status, 0) << run.err;
  const auto messages = nlohmann::json::parse(read_text_file(home / "c.json"))["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[2]["content"], "Go\non.");
  EXPECT_EQ(run.out, messages[1]["content"].get<std::string>() + "\n" +
                         messages[3]["content"].get<std::string>() + "\n");
  EXPECT_THAT(run.err, HasSubstr("tokens; 27 of them had not to be read again"));

  // What was saved goes on.
  const Outcome loaded =
      piped(home, "/undo\n/regenerate\n", "'" + kDemo + "' --temp 0 -n 10 --load " + (home / "c.json"));
  EXPECT_EQ(loaded.out, messages[1]["content"].get<std::string>() + "\n");
}

TEST(ChatInAPipe, ErrorsAreOneLineAndTheStatusOne) {
  const TemporaryFolder home;
  const auto fails = [&](const std::string& input, const std::string& arguments, const std::string& why) {
    const Outcome run = piped(home, input, arguments);
    EXPECT_EQ(run.status, 1) << input;
    EXPECT_THAT(run.err, AllOf(HasSubstr(why), EndsWith("\n")));
    EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << run.err;
  };
  const std::string demo = "'" + kDemo + "'";
  fails("/load /nonexistent\n", demo, "/nonexistent: cannot open");
  fails("/save " + home.path() + "/no/x\n", demo, "no/x");
  fails("/set top_p 2\n", demo, "'2' is not a number from 0 to 1");
  fails("/regenerate\n", demo, "no message to answer");
  fails("x\n", demo + " --load /dev/zero", "not a regular file");
  fails("Tell me of a fox who was out in the cold and the snow for many a day.\n", demo + " --context 24",
        "leaves no room for an answer in a context of 24; /undo takes back the last turn, /reset begins "
        "anew, and "
        "`redlite chat --context N` (up to 4096) holds more");
}

TEST(ChatInAPipe, WithoutAModelTheBestOfTheUsersIsTakenOrTheBundledOne) {
  const TemporaryFolder home;
  const std::string ask = "Hello.\n/stats\n/save " + (home / "c.json") + "\n";
  EXPECT_EQ(piped(home, ask, "-n 2").status, 0);
  std::filesystem::create_directories(home / ".redlite/models/tales");
  std::filesystem::create_symlink(kDemo, home / ".redlite/models/tales/x.gguf");
  write_file_atomically(home / ".redlite/models/broken.gguf", std::as_bytes(std::span("GGUF?", 5)));
  EXPECT_EQ(piped(home, ask, "-n 2").status, 0);
}

}  // namespace
}  // namespace redlite
