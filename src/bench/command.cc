#include "bench/command.h"

#include <sys/wait.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::bench {
namespace {

/// What llama-bench prints is far from it.
constexpr size_t kMostOutput = size_t{16} << 20;

/// At most a little more than kMostOutput.
std::string rest_of(std::FILE* file) {
  std::string text;
  char block[4096];
  for (size_t n; text.size() <= kMostOutput && (n = std::fread(block, 1, sizeof block, file)) > 0;)
    text.append(block, n);
  return text;
}

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

std::string run_command(const std::string& command) {
  // Its messages go to an unnamed file, which cannot fill up as a second pipe could.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> messages(std::tmpfile(), std::fclose);
  if (!messages) fail("cannot make a temporary file for the messages of {}", quote(command));
  const std::string line = fmt::format("exec 2>/dev/fd/{}\n{}", fileno(messages.get()), command);
  std::FILE* const output = ::popen(line.c_str(), "r");
  if (output == nullptr) fail("cannot run {}", quote(command));
  std::string text = rest_of(output);
  const int status = ::pclose(output);
  if (text.size() > kMostOutput) fail("{} printed more than {} MiB", quote(command), kMostOutput >> 20);
  if (status == 0) return text;
  std::rewind(messages.get());
  const std::string why = last_line(rest_of(messages.get()));
  fail("{} {}{}", quote(command),
       WIFEXITED(status) ? fmt::format("exited with status {}", WEXITSTATUS(status))
                         : fmt::format("was ended by signal {}", WTERMSIG(status)),
       why.empty() ? "" : ": " + quote(why));
}

}  // namespace redlite::bench
