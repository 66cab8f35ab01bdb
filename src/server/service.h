#pragma once

#include <memory>
#include <string>

#include "chat/chat.h"
#include "http/server.h"
#include "model/model.h"
#include "server/access.h"
#include "server/task.h"
#include "session/engine.h"
#include "tokenizer/tokenizer.h"

namespace redlite::server {

struct ServiceOptions {
  AccessOptions access;
  Defaults defaults;
  std::string model_name;                          ///< what clients call the model
  std::string version;                             ///< of this program
  std::shared_ptr<const chat::Renderer> renderer;  ///< none: of the model's own chat template
};

/// Everything that the server answers, without the sockets: routes, access, the APIs, metrics and the page.
/// Thread-safe. What it is given must outlive it.
class Service {
 public:
  Service(const model::Model& model, const tokenizer::Tokenizer& tokenizer, session::Engine& engine,
          ServiceOptions options);
  ~Service();

  /// For http::Server.
  void handle(http::Exchange& exchange);
  void refuse(http::Exchange& exchange, const http::Refused& refused);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::server
