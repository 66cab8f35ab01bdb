#pragma once

#include <memory>
#include <mutex>

#include "chat/answer_format.h"
#include "constrain/constrain.h"
#include "engine/token_filter.h"
#include "server/task.h"
#include "tokenizer/tokenizer.h"

namespace redlite::server {

/// Makes the filters that keep answers to what a task asks for. Thread-safe; the tokenizer must outlive it.
class Constraints {
 public:
  explicit Constraints(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// nullptr: the answer is free. Throws ApiError (400) where a format is asked for that cannot be kept to.
  ///
  /// Calls of tools follow the tools' schemas; a schema that is beyond what can be kept to counts as any
  /// object.
  std::shared_ptr<engine::TokenFilter> filter(const Task& task, chat::ToolFormat format,
                                              chat::Reasoning reasoning) const;

 private:
  std::shared_ptr<const constrain::Grammar> grammar(const Task& task, chat::ToolFormat format,
                                                    chat::Reasoning reasoning) const;

  const tokenizer::Tokenizer& tokenizer_;
  mutable std::once_flag once_;
  mutable std::shared_ptr<const constrain::Vocabulary> vocabulary_;  ///< made when it is first needed
};

}  // namespace redlite::server
