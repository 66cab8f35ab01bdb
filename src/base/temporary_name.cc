#include "base/temporary_name.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

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
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
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
