#include "tokenizer/special_matcher.h"

#include <algorithm>

namespace redlite::tokenizer {

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary) {
  std::vector<Token> specials;
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (vocabulary.is_kind(token, kControl | kUserDefined | kUnknown)) specials.push_back(token);
  }
  const auto text = [&](Token token) -> std::string_view {
    return vocabulary.texts[static_cast<size_t>(token)];
  };
  std::stable_sort(specials.begin(), specials.end(),
                   [&](Token a, Token b) { return text(a).size() > text(b).size(); });
  for (const Token token : specials) {
    const bool always = !vocabulary.is_kind(token, kControl | kUnknown);
    by_text_.emplace(text(token), Special{token, always, static_cast<uint32_t>(by_text_.size())});
    std::vector<size_t>& lengths = lengths_[static_cast<uint8_t>(text(token)[0])];
    if (lengths.empty() || lengths.back() != text(token).size()) lengths.push_back(text(token).size());
  }
}

std::vector<SpecialMatcher::Match> SpecialMatcher::find(std::string_view text, bool parse_special,
                                                        std::span<const Range> plain) const {
  struct Occurrence {
    uint32_t priority;
    Match match;
  };
  std::vector<Occurrence> occurrences;
  size_t part = 0;  // of `plain`: the first that does not end before `at`
  for (size_t at = 0; at < text.size(); ++at) {
    while (part < plain.size() && plain[part].end <= at) ++part;
    for (const size_t length : lengths_[static_cast<uint8_t>(text[at])]) {
      if (length > text.size() - at) continue;
      const auto special = by_text_.find(text.substr(at, length));
      if (special == by_text_.end() || !(parse_special || special->second.always)) continue;
      if (!special->second.always && part < plain.size() && plain[part].begin < at + length) continue;
      occurrences.push_back({special->second.priority, {at, length, special->second.token}});
    }
  }
  std::stable_sort(occurrences.begin(), occurrences.end(),
                   [](const Occurrence& a, const Occurrence& b) { return a.priority < b.priority; });

  // Taken matches are at least as long as the one looked at, so an overlap covers one of its ends.
  std::vector<bool> covered(occurrences.empty() ? 0 : text.size());
  std::vector<Match> matches;
  for (const auto& [priority, match] : occurrences) {
    if (covered[match.begin] || covered[match.begin + match.length - 1]) continue;
    std::fill_n(covered.begin() + static_cast<ptrdiff_t>(match.begin), match.length, true);
    matches.push_back(match);
  }
  std::sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) { return a.begin < b.begin; });
  return matches;
}

}  // namespace redlite::tokenizer
