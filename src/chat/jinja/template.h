#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/text.h"

namespace redlite::chat::jinja {

struct Variables {
  /// From outside: an object whose members become variables. Every text in it is content.
  nlohmann::ordered_json content = nlohmann::ordered_json::object();
  /// From the model's file: texts that may stand for control tokens, such as bos_token.
  std::vector<std::pair<std::string, std::string>> trusted;
  std::time_t now = 0;  ///< for strftime_now
  /// The most steps that a rendering takes, besides what the size of `content` adds.
  uint64_t steps = 20'000'000;
};

/// A chat template in Jinja's language, as transformers sets it up: trim_blocks and lstrip_blocks, loop
/// controls,
/// {% generation %}, its tojson, raise_exception and strftime_now. What a template asks for that is not known
/// here is an error, never ignored; so is what would change a dict (only a list can be appended to).
///
/// Hostile templates and variables are bounded: 1 MiB of source, nesting, steps, 64 MiB for any text.
/// Immutable and safe to share between threads.
class Template {
 public:
  static constexpr size_t kMaxSource = size_t{1} << 20;

  /// `name` starts the messages of errors: "<name>, line 3, column 7: ...". Throws Error if the source is no
  /// template.
  Template(std::string name, std::string_view source);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// Throws Error that says where in the template and why.
  Text render(const Variables& variables) const;

  /// True if the template asks for this variable anywhere.
  bool reads(std::string_view variable) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace redlite::chat::jinja
