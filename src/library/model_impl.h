#pragma once

#include <redlite/redlite.h>

#include <optional>

#include "chat/chat.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace redlite {

struct Model::Impl {
  explicit Impl(const std::string& path) : model(path), tokenizer(model.file()) {}

  redlite::model::Model model;
  redlite::tokenizer::Tokenizer tokenizer;
  ModelInfo info;
};

}  // namespace redlite
