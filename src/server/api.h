#pragma once

#include <memory>
#include <string_view>

#include "server/answer.h"
#include "server/task.h"

namespace redlite::server {

/// One of the interfaces that clients speak: how its requests are read and its responses written. Each is one
/// file. Stateless, but for Responses, which remembers conversations; safe to use from several threads.
class Api {
 public:
  virtual ~Api() = default;
  virtual std::string_view name() const = 0;  ///< in metrics

  /// Reads a request. Throws ApiError.
  virtual Task parse(const Json& request, const Defaults& defaults) = 0;
  virtual Json whole(const Task& task, const Identity& identity, const WholeAnswer& answer) = 0;
  /// The task and identity must outlive the stream.
  virtual std::unique_ptr<AnswerStream> stream(const Task& task, const Identity& identity, Emit emit) = 0;
  virtual Json error(const ApiError& error) const = 0;
};

std::unique_ptr<Api> openai_chat();         ///< /v1/chat/completions
std::unique_ptr<Api> openai_completions();  ///< /v1/completions
std::unique_ptr<Api> openai_responses();    ///< /v1/responses
std::unique_ptr<Api> anthropic_messages();  ///< /v1/messages

}  // namespace redlite::server
