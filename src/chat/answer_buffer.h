#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace redlite::chat {

inline constexpr std::string_view kFunctionBegin = "<function=";
inline constexpr std::string_view kFunctionEnd = "</function>";
inline constexpr std::string_view kParameterBegin = "<parameter=";
inline constexpr std::string_view kParameterEnd = "</parameter>";

/// Whether something stands at a place, as far as the text has come.
enum class Match : uint8_t { No, Wait, Yes };

/// The part of an answer that is not used up yet, and what stands where in it. Lookahead is bounded, so that
/// every byte is looked at a bounded number of times: what is longer is no markup.
struct AnswerBuffer {
  static constexpr size_t kMaxCallName = 256;
  static constexpr size_t kMaxBlanks = 1024;

  std::string buffer;  ///< what is not used up yet: from `at` on
  size_t at = 0;
  size_t scan = 0;     ///< >= at: up to here a state has looked already
  bool final = false;  ///< nothing more will come

  Match match(size_t place, std::string_view tag) const;
  Match match_any(size_t place, std::initializer_list<std::string_view> tags) const;
  bool ends_at(size_t place) const { return place >= buffer.size(); }
  size_t skip_blanks(size_t place) const;
  /// A name from `place` to the first '>': `end` is the place of that.
  Match name_until_bracket(size_t place, size_t& end) const;
  /// A short JSON string at `place`: `end` lies behind it.
  Match short_string(size_t place, size_t& end) const;
  /// A short JSON string and a colon behind it: `end` lies behind both.
  Match key_and_colon(size_t place, std::string& key, size_t& end) const;
};

bool is_blank(char c);

/// The text that a JSON string stands for; empty if it is none.
std::string decode_string(std::string_view quoted);

}  // namespace redlite::chat
