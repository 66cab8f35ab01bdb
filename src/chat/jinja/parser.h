#pragma once

#include <string_view>

#include "chat/jinja/ast.h"

namespace redlite::chat::jinja {

/// Parses a normalised source. Nesting is bounded, of what is written and of the tree. Throws SyntaxFailure.
Program parse(std::string_view source);

}  // namespace redlite::chat::jinja
