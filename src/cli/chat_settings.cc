#include "cli/chat_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::cli {
namespace {

/// A setting by its name: how it is shown and changed.
struct Entry {
  std::string_view name, what;
  std::function<std::string(const ChatSettings&)> show;
  std::function<void(ChatSettings&, const std::string&)> set;
};

template <typename Number>
Entry number(std::string_view name, std::string_view what, Number& (*of)(ChatSettings&), Number low,
             Number high) {
  return {name, what,
          [=](const ChatSettings& s) { return fmt::format("{}", of(const_cast<ChatSettings&>(s))); },
          [=](ChatSettings& s, const std::string& text) {
            Number value{};
            if (!CLI::detail::lexical_cast(text, value) || !(value >= low && value <= high))
              fail("/set {}: {} is not a number from {} to {}", name, quote(text), low, high);
            of(s) = value;
          }};
}

Entry word(std::string_view name, std::string_view what, std::string& (*of)(ChatSettings&),
           std::vector<std::string> words) {
  return {name, what, [=](const ChatSettings& s) { return of(const_cast<ChatSettings&>(s)); },
          [=](ChatSettings& s, const std::string& text) {
            if (std::ranges::find(words, text) == words.end())
              fail("/set {}: {} is none of: {}", name, quote(text), fmt::join(words, ", "));
            of(s) = text;
          }};
}

using S = ChatSettings;

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      number<float>(
          "temp", "temperature; 0: always the likeliest token",
          [](S& s) -> float& { return s.sampler.temperature; }, 0, 100),
      number<int>(
          "top_k", "keep the K likeliest tokens; 0: off", [](S& s) -> int& { return s.sampler.top_k; }, 0,
          1 << 30),
      number<float>(
          "top_p", "keep the likeliest tokens that sum to P; 1: off",
          [](S& s) -> float& { return s.sampler.top_p; }, 0, 1),
      number<float>(
          "min_p", "keep tokens at least P times as likely as the likeliest; 0: off",
          [](S& s) -> float& { return s.sampler.min_p; }, 0, 1),
      number<float>(
          "repeat_penalty", "divide the logits of recent tokens; 1: off",
          [](S& s) -> float& { return s.sampler.repeat_penalty; }, 0.01f, 100),
      number<float>(
          "presence_penalty", "subtract from the logits of recent tokens; 0: off",
          [](S& s) -> float& { return s.sampler.presence_penalty; }, -100, 100),
      number<float>(
          "frequency_penalty", "the same times their count; 0: off",
          [](S& s) -> float& { return s.sampler.frequency_penalty; }, -100, 100),
      {"seed", "of the sampler, the same for each answer; random: another for each",
       [](const S& s) { return s.own_seed ? std::to_string(s.sampler.seed) : "random"; },
       [](S& s, const std::string& text) {
         s.own_seed = text != "random";
         if (s.own_seed && !CLI::detail::lexical_cast(text, s.sampler.seed))
           fail("/set seed: {} is neither a number nor random", quote(text));
       }},
      number<int>(
          "max_tokens", "most tokens of an answer; 0: up to the end of the context",
          [](S& s) -> int& { return s.max_tokens; }, 0, 1 << 24),
      word("reasoning", "what the model thinks before it answers: show, hide or auto (on a terminal)",
           [](S& s) -> std::string& { return s.reasoning; }, {"show", "hide", "auto"}),
      word("thinking", "whether it thinks, if its template lets one choose: on, off or model (as it does)",
           [](S& s) -> std::string& { return s.thinking; }, {"on", "off", "model"}),
  };
  return all;
}

}  // namespace

void ChatSettings::set(std::string_view name, const std::string& value) {
  for (const Entry& entry : entries()) {
    if (entry.name == name) {
      entry.set(*this, value);
      return;
    }
  }
  fail("/set: there is no {}; /set alone lists what there is", quote(name));
}

std::string ChatSettings::table() const {
  std::string out;
  for (const Entry& entry : entries())
    out += fmt::format("  {:<18} {:<8} {}\n", entry.name, entry.show(*this), entry.what);
  return out;
}

nlohmann::ordered_json ChatSettings::variables() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (thinking != "model") json["enable_thinking"] = thinking == "on";
  return json;
}

}  // namespace redlite::cli
