#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace redlite::dialogue {

/// Writes a conversation as {"model": name, "messages": [...]}, all or nothing. Throws Error.
void save_messages(const std::string& path, const std::string& model, const nlohmann::ordered_json& messages);

/// Reads what save_messages() wrote, or an array of such messages. Anything else is an Error that names the
/// file and the message: the file may come from anywhere.
nlohmann::ordered_json load_messages(const std::string& path);

}  // namespace redlite::dialogue
