#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace redlite {

/// Whether a path names something that a new file must not take the place of: a device, a pipe, a link.
bool is_special_file(const std::string& path);

/// Checks, before long work, that a file can be written there: it has a name, its folder exists and lets us,
/// it is no folder itself and none of `others`, which the same command reads or writes (empty ones: no file).
/// Throws Error.
void check_output(const std::string& path, std::initializer_list<std::string_view> others = {});

/// The name of the temporary file beside `path` that becomes `path` when it is complete. The file goes with
/// this object, unless it was renamed, and with the program when SIGINT, SIGTERM, SIGHUP or SIGPIPE ends it:
/// a half-written model is gigabytes that nobody will look for.
class TemporaryName {
 public:
  /// `path` must be no special file and where a file can be written; otherwise throws Error.
  explicit TemporaryName(const std::string& path);
  ~TemporaryName();
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;

  const std::string& text() const { return text_; }
  const char* c_str() const { return text_.c_str(); }

  /// Gives the file its final name. Throws Error.
  void rename();

 private:
  std::string path_, text_;
  size_t place_;  ///< among those that signals remove
  bool renamed_ = false;
};

}  // namespace redlite
