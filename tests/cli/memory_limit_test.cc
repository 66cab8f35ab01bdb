// A model larger than the memory it may take: the program in a real memory cgroup.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../support/temporary_folder.h"
#include "base/file.h"

namespace redlite {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

bool write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text << std::flush;
  return out.good();
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A memory cgroup below our own, for programs that we start; gone with this object.
class MemoryCgroup {
 public:
  /// nullopt, with the reason, where none can be made.
  static std::optional<MemoryCgroup> make(uint64_t limit, std::string& reason) {
    std::istringstream lines(text_of("/proc/self/cgroup"));
    reason = "this system has no cgroups";
    for (std::string line; std::getline(lines, line);) {  // hierarchy:controllers:path
      const size_t first = line.find(':');
      const size_t second = line.find(':', first + 1);
      if (first == std::string::npos || second == std::string::npos) continue;
      const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
      const bool v2 = controllers == ",,";
      if (!v2 && controllers.find(",memory,") == std::string::npos) continue;
      std::string parent = (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory") + line.substr(second + 1);
      // In version 2 a group with processes hands no controllers down, but its parent may.
      for (const std::string& at : {parent, parent.substr(0, parent.rfind('/'))}) {
        MemoryCgroup group(fmt::format("{}/redlite_test_{}", at, ::getpid()), v2);
        if (::mkdir(group.path_.c_str(), 0755) != 0) {
          reason = fmt::format("{}: {}", group.path_, std::strerror(errno));
          group.path_.clear();
          continue;
        }
        const bool limited = v2 ? write_text(group.path_ + "/memory.max", std::to_string(limit)) &&
                                      write_text(group.path_ + "/memory.swap.max", "0")
                                : write_text(group.path_ + "/memory.limit_in_bytes", std::to_string(limit));
        if (limited) return group;
        reason = group.path_ + ": the memory controller is not handed down to it";
      }
    }
    return std::nullopt;
  }

  MemoryCgroup(MemoryCgroup&& other) noexcept : path_(std::exchange(other.path_, {})), v2_(other.v2_) {}
  MemoryCgroup& operator=(MemoryCgroup&&) = delete;
  ~MemoryCgroup() {
    // A process that has just ended may hold it for a moment.
    for (int i = 0; i < 100 && !path_.empty() && ::rmdir(path_.c_str()) != 0 && errno == EBUSY; ++i)
      ::usleep(10000);
  }

  std::string processes() const { return path_ + "/cgroup.procs"; }
  /// Bytes charged to the group at most; nullopt: this kernel does not tell.
  std::optional<uint64_t> peak() const {
    const std::string text = text_of(path_ + (v2_ ? "/memory.peak" : "/memory.max_usage_in_bytes"));
    if (text.empty()) return std::nullopt;
    return std::stoull(text);
  }

 private:
  MemoryCgroup(std::string path, bool v2) : path_(std::move(path)), v2_(v2) {}

  std::string path_;
  bool v2_;
};

struct Outcome {
  int exit_status = -1;  ///< -1: ended by a signal
  int signal = 0;
  std::string out, err;
};

/// Runs the program, in a cgroup if one is given.
Outcome run(const std::vector<std::string>& arguments, const std::string& folder,
            const MemoryCgroup* group = nullptr) {
  std::vector<std::string> words{REDLITE_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = folder + "/out";
  const std::string err = folder + "/err";
  const std::string processes = group != nullptr ? group->processes() : "";
  const pid_t child = ::fork();
  if (child == 0) {
    if (!processes.empty() && !write_text(processes, std::to_string(::getpid()))) std::_Exit(125);
    if (std::freopen(out.c_str(), "w", stdout) == nullptr) std::_Exit(126);
    if (std::freopen(err.c_str(), "w", stderr) == nullptr) std::_Exit(126);
    ::execv(argv[0], argv.data());
    std::_Exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          text_of(out), text_of(err)};
}

class MemoryLimit : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's memory would count, too";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    GTEST_SKIP() << "a sanitizer's memory would count, too";
#endif
#endif
    if (!group_) GTEST_SKIP() << "no memory cgroup can be made here (" << reason_ << ")";
    const Outcome synth =
        run({"synth", model_, "--preset", "small", "--types", "experts=IQ1_S"}, folder_.path());
    ASSERT_EQ(synth.exit_status, 0) << synth.err;
  }

  std::vector<std::string> generate(const std::string& cache_mib, const std::string& io = "auto") const {
    std::string prompt = "1";
    for (int i = 2; i <= 256; ++i) prompt += fmt::format(",{}", i * 37);
    return {"generate",    model_,         "--tokens",  prompt,        "-n",      "8",    "--ignore-eos",
            "--print-ids", "--stats-json", statistics_, "--cache-mib", cache_mib, "--io", io};
  }
  double peak_of_process() const {
    return nlohmann::json::parse(text_of(statistics_)).at("peak_memory_mib").get<double>();
  }

  // 600 MiB of experts, 95 of dense weights.
  static constexpr uint64_t kLimit = 320 * kMiB;
  const testing::TemporaryFolder folder_;
  const std::string model_ = folder_.path() + "/model.gguf";
  const std::string statistics_ = folder_.path() + "/statistics.json";
  std::string reason_;
  const std::optional<MemoryCgroup> group_ = MemoryCgroup::make(kLimit, reason_);
};

TEST_F(MemoryLimit, AQuarterOfTheExpertsRunsWhereAllOfThemAreKilled) {
  const Outcome free = run(generate("full"), folder_.path());
  ASSERT_EQ(free.exit_status, 0) << free.err;
  EXPECT_GT(peak_of_process(), static_cast<double>(kLimit / kMiB)) << "the limit would hold everything";

  for (const char* io : {"auto", "buffered"}) {
    const Outcome quarter = run(generate("150", io), folder_.path(), &*group_);
    ASSERT_EQ(quarter.exit_status, 0) << io << ", signal " << quarter.signal << ": " << quarter.err;
    EXPECT_EQ(quarter.out, free.out) << io;
    EXPECT_LT(peak_of_process(), static_cast<double>(kLimit / kMiB)) << io;
  }
  const std::optional<uint64_t> peak = group_->peak();
  if (peak) {
    EXPECT_LE(*peak, kLimit);
    EXPECT_GT(*peak, 100 * kMiB) << "the cache was not charged to the group: the test tests nothing";
  }

  // The limit is real: slots for nearly all experts do not fit into it.
  const Outcome all = run(generate("590"), folder_.path(), &*group_);
  EXPECT_EQ(all.signal, SIGKILL) << "exit status " << all.exit_status << ": " << all.err;
}

}  // namespace
}  // namespace redlite
