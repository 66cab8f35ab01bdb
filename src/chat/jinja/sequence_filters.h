#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/builtins.h"

namespace redlite::chat::jinja {

/// The filters of lists, dicts and what else can be iterated over.
std::vector<std::pair<std::string_view, FilterFunction>> sequence_filters();

}  // namespace redlite::chat::jinja
