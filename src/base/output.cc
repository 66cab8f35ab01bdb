#include "base/output.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace redlite {
namespace {

/// A name where a signal handler finds it, without allocation.
struct Place {
  std::atomic<bool> taken = false;
  std::atomic<bool> valid = false;
  char name[4097] = {};  // of PATH_MAX characters
};

constexpr size_t kPlaces = 4, kNoPlace = kPlaces;
std::array<Place, kPlaces> places;

void remove_and_end(int signal) {
  for (const Place& place : places)
    if (place.valid) ::unlink(place.name);
  ::raise(signal);  // the default, as this handler is for one signal; it ends the program on return
}

void watch_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction old {};
    if (::sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = remove_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
}

size_t find_place(const std::string& name) {
  if (name.size() >= sizeof(Place::name)) return kNoPlace;
  for (size_t i = 0; i < kPlaces; ++i) {
    if (places[i].taken.exchange(true)) continue;
    std::memcpy(places[i].name, name.c_str(), name.size() + 1);
    places[i].valid = true;
    return i;
  }
  return kNoPlace;
}

}  // namespace

bool is_special_file(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

void check_output(const std::string& path, std::initializer_list<std::string_view> others) {
  namespace fs = std::filesystem;
  if (path.empty()) fail("the name of the file to write is empty");
  std::error_code error;
  if (fs::is_directory(path, error)) fail("{}: cannot be written: it is a directory; name a file", path);
  const fs::path absolute = fs::weakly_canonical(path, error);
  for (const std::string_view other : others) {
    if (other.empty()) continue;
    const bool same = fs::equivalent(path, other, error) ||  // one file by two names, or neither exists yet
                      (!absolute.empty() && fs::weakly_canonical(other, error) == absolute);
    if (same) fail("{}: this command reads or writes it, too; name another file to write", path);
  }
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const bool in_place = is_special_file(path);
  if (!in_place && !fs::is_directory(folder, error))
    fail("{}: cannot be written: there is no folder {}", path, folder);
  if (in_place ? ::access(path.c_str(), W_OK) != 0 && errno != ENOENT
               : ::access(folder.c_str(), W_OK | X_OK) != 0)
    fail("{}: cannot be written: {}", path, std::strerror(errno));
}

TemporaryName::TemporaryName(const std::string& path)
    : path_(path), text_(fmt::format("{}.{}.tmp", path, ::getpid())) {
  check_output(path);
  if (is_special_file(path)) fail("{}: cannot be written: it is not a regular file", path);
  watch_signals();
  place_ = find_place(text_);
}

TemporaryName::~TemporaryName() {
  if (!renamed_) ::unlink(text_.c_str());
  if (place_ == kNoPlace) return;
  places[place_].valid = false;
  places[place_].taken = false;
}

void TemporaryName::rename() {
  if (std::rename(text_.c_str(), path_.c_str()) != 0)
    fail("{}: renaming the finished temporary failed: {}", path_, std::strerror(errno));
  renamed_ = true;
}

}  // namespace redlite
