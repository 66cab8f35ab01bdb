#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/budget.h"
#include "chat/jinja/text.h"

namespace redlite::chat::jinja {

// Python's operations on strings. Positions and lengths are in bytes unless they say "characters"; a byte
// that belongs to no UTF-8 character counts as one.

/// str.isspace().
bool is_space(uint32_t code_point);
/// A letter that has a lower and an upper case form.
bool is_cased(uint32_t code_point);

size_t count_characters(std::string_view text);
/// The byte positions of every character, and of the end.
std::vector<size_t> character_positions(std::string_view text);

constexpr size_t kNotFound = std::string_view::npos;
/// Linear in the length of the text, whatever the needle.
size_t find(std::string_view text, std::string_view needle, size_t from = 0);
/// Every occurrence, from the left, without overlaps. The needle is not empty.
std::vector<size_t> find_all(std::string_view text, std::string_view needle);

struct Sides {
  bool left = true, right = true;
};
/// str.strip(characters); without `characters`, white space.
Text strip(const Text& text, Sides sides, std::optional<std::string_view> characters = std::nullopt);
/// str.split(separator, limit); without `separator`, by white space. A negative limit is none.
std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit);
std::vector<Text> rsplit(const Text& text, std::optional<std::string_view> separator, int64_t limit);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
/// str.replace(from, to, limit).
Text replace(const Text& text, std::string_view from, const Text& to, int64_t limit);
Text join(const Text& separator, const std::vector<Text>& parts);
/// The text with &, <, > and quotes as HTML's entities, as markup; markup as it is.
Text escape_html(const Text& text);
Text repeat(const Text& text, int64_t times, Budget& budget);

enum class Case { Lower, Upper, Capitalize, Title, Swap };
/// Case::Title is str.title(); the filter of that name is title_filter().
Text change_case(const Text& text, Case to);
Text title_filter(const Text& text);

}  // namespace redlite::chat::jinja
