#include "session/state_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

namespace redlite::session {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".rlstate";
constexpr size_t kMostFiles = 4096;
/// States waiting to be written: memory that is not free yet.
constexpr size_t kMostQueued = 2;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// "NAME.rlstate.PID.tmp" of a process that is no more.
bool is_abandoned(std::string_view name) {
  constexpr std::string_view kTemporary = ".tmp";
  const size_t suffix = name.rfind(kSuffix);
  if (suffix == std::string_view::npos || !name.ends_with(kTemporary)) return false;
  name.remove_suffix(kTemporary.size());
  name.remove_prefix(std::min(suffix + kSuffix.size() + 1, name.size()));
  int pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end != name.data() + name.size() || pid <= 0) return false;
  return pid != ::getpid() && ::kill(pid, 0) != 0 && errno == ESRCH;
}

bool starts_with(std::span<const model::Token> all, std::span<const model::Token> beginning) {
  return beginning.size() <= all.size() && std::ranges::equal(all.first(beginning.size()), beginning);
}

}  // namespace

StateFolder::StateFolder(std::string path, const StateShape& shape, uint64_t most_bytes, Log log)
    : path_(std::move(path)), shape_(shape), most_bytes_(most_bytes), log_(std::move(log)) {
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  if (::mkdir(path_.c_str(), 0700) != 0 && !fs::is_directory(path_, error))
    fail("{}: cannot be made a folder for states", path_);
  if (::access(path_.c_str(), R_OK | W_OK | X_OK) != 0) fail("{}: states cannot be written there", path_);
  read_folder();
  writer_ = std::thread([this] { write_loop(); });
}

StateFolder::~StateFolder() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

void StateFolder::read_folder() {
  int foreign = 0;
  std::error_code error;
  for (fs::directory_iterator file(path_, error), end; !error && file != end; file.increment(error)) {
    Entry entry;
    entry.name = file->path().filename().string();
    if (is_abandoned(entry.name)) remove(entry.name);
    struct stat st {};
    if (!entry.name.ends_with(kSuffix) || ::lstat(path_of(entry.name).c_str(), &st) != 0 ||
        !S_ISREG(st.st_mode))
      continue;
    entry.bytes = static_cast<uint64_t>(st.st_size);
    entry.used = int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
    try {
      entry.head = read_state_head(path_of(entry.name), shape_);
    } catch (const ForeignState&) {
      ++foreign;
    } catch (const Error& e) {
      log_(fmt::format("{}; it is ignored", e.what()));
    }
    entries_.push_back(std::move(entry));
  }
  if (foreign > 0) {
    log_(fmt::format("{}: {} {} of another model, program or settings; ignored", path_, foreign,
                     foreign == 1 ? "state" : "states"));
  }
}

std::optional<StateFolder::Found> StateFolder::find(std::span<const model::Token> prompt, int least) const {
  const std::lock_guard lock(mutex_);
  std::optional<Found> found;
  std::vector<PlacedMark> marks;
  for (const Entry& entry : entries_) {
    marks.clear();
    for (const int position : entry.head.marks) marks.push_back({position, nullptr, {}});
    const int place = best_place(entry.head.tokens, marks, shape_.mark_bytes == 0, prompt);
    if (place > least) {
      least = place;
      found = Found{place, entry.name};
    }
  }
  return found;
}

std::optional<StateFolder::Loaded> StateFolder::load(const Found& found) {
  const std::string path = path_of(found.name);
  Loaded loaded;
  try {
    loaded.content = read_state_file(path, shape_, loaded.head);
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    const std::lock_guard lock(mutex_);
    const auto entry = std::ranges::find(entries_, found.name, &Entry::name);
    if (entry == entries_.end()) return std::nullopt;
    entry->used = now_ns();
    // Another process may have put another state in its place; then that one is known from now on.
    if (entry->head.tokens == loaded.head.tokens && entry->head.marks == loaded.head.marks) return loaded;
    entry->head = loaded.head;
  } catch (const Error& e) {
    log_(fmt::format("{}; it is ignored", e.what()));
    const std::lock_guard lock(mutex_);
    const auto entry = std::ranges::find(entries_, found.name, &Entry::name);
    if (entry != entries_.end()) entry->head = {};
  }
  return std::nullopt;
}

bool StateFolder::save(std::shared_ptr<const KeptState> state, bool wait) {
  {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [&] { return queue_.size() < kMostQueued; });
    if (queue_.size() >= kMostQueued) return false;
    queue_.push_back(std::move(state));
  }
  changed_.notify_all();
  return true;
}

void StateFolder::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !writing_; });
}

bool StateFolder::writing() const {
  const std::lock_guard lock(mutex_);
  return !queue_.empty() || writing_;
}

int StateFolder::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(entries_.size());
}

uint64_t StateFolder::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.bytes;
  return sum;
}

void StateFolder::write_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::shared_ptr<const KeptState> state = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    lock.unlock();
    changed_.notify_all();
    try {
      write(*state);
    } catch (const std::exception& e) {
      log_(fmt::format("a state was not kept: {}", e.what()));
    }
    state.reset();
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

void StateFolder::write(const KeptState& state) {
  if (state.bytes() > most_bytes_) return;
  make_room(state.bytes());
  Entry entry;
  entry.head.tokens = state.tokens;
  std::vector<std::span<const std::byte>> marks;
  for (const PlacedMark& m : state.marks) {
    entry.head.marks.push_back(m.position);
    marks.push_back(m.mark->bytes());
  }
  entry.name =
      fmt::format("{:016x}{}",
                  XXH3_64bits_withSeed(state.tokens.data(), state.tokens.size() * sizeof(model::Token),
                                       shape_.fingerprint[0]),
                  kSuffix);
  write_state_file(path_of(entry.name), shape_, entry.head, state.positions.span(), marks);
  std::error_code error;
  entry.bytes = fs::file_size(path_of(entry.name), error);
  entry.used = now_ns();

  // Those that this one continues, or replaces.
  std::vector<std::string> replaced;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& old : entries_) {
      if (old.name != entry.name && !old.head.tokens.empty() &&
          starts_with(entry.head.tokens, old.head.tokens))
        replaced.push_back(old.name);
    }
    std::erase_if(entries_, [&](const Entry& old) { return old.name == entry.name; });
    entries_.push_back(std::move(entry));
  }
  for (const std::string& name : replaced) remove(name);
}

void StateFolder::remove(const std::string& name) {
  ::unlink(path_of(name).c_str());
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
}

void StateFolder::make_room(uint64_t bytes) {
  for (;;) {
    std::string oldest;
    {
      const std::lock_guard lock(mutex_);
      uint64_t sum = bytes;
      for (const Entry& entry : entries_) sum += entry.bytes;
      if (entries_.empty() || (sum <= most_bytes_ && entries_.size() < kMostFiles)) return;
      oldest = std::ranges::min_element(entries_, {}, &Entry::used)->name;
    }
    remove(oldest);
  }
}

}  // namespace redlite::session
