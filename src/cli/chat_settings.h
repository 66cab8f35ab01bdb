#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/sampler.h"

namespace redlite::cli {

/// What one can change in a chat: /set NAME VALUE.
struct ChatSettings {
  engine::SamplerOptions sampler = {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .min_p = 0};
  bool own_seed = false;           ///< false: every answer is drawn anew
  int max_tokens = 0;              ///< 0: up to the end of the context
  std::string reasoning = "auto";  ///< "show", "hide"; "auto": shown on a terminal
  std::string thinking = "model";  ///< "on", "off": told to the template; "model": as the model does

  /// Throws Error for a name or a value that there is not.
  void set(std::string_view name, const std::string& value);
  /// A line for each: name, value, what it is.
  std::string table() const;
  /// For the template.
  nlohmann::ordered_json variables() const;
};

}  // namespace redlite::cli
