#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "model/model.h"
#include "model/runner.h"
#include "session/request.h"
#include "session/state_folder.h"
#include "session/statistics.h"
#include "tokenizer/tokenizer.h"

namespace redlite::session {

struct EngineOptions {
  int parallel = 1;     ///< answers computed at a time; a runner of one sequence allows 1
  int max_queued = 64;  ///< requests that may wait; a client without any may exceed it, up to twice
  uint64_t state_bytes = 1 << 30;  ///< memory for states kept of conversations, see Engine
  std::string state_dir;           ///< folder that keeps them over a restart; empty: none
  uint64_t state_dir_bytes = uint64_t{8} << 30;
  /// What else the bits of an answer depend on, such as the program's version and commit: a state on disk is
  /// used only where it is the same.
  std::string build;
  /// A conversation at rest for so long is written to the folder, in case the process ends without
  /// shutdown().
  std::chrono::milliseconds save_after{5000};
  Reporter report;  ///< may be empty
  Log log;          ///< may be empty
};

/// Answers requests with one runner, several at a time, in a thread of its own.
///
/// Each answer has the same bits as if it had been computed alone by a new process, whatever else goes on.
/// The states behind prompts, boundaries and answers are kept, in memory and on disk, least recently used
/// first out; a prompt that begins like an earlier one is read only from the last kept state on.
///
/// Thread-safe. Model and tokenizer must outlive it.
class Engine {
 public:
  /// Throws Error when the state folder cannot be used.
  Engine(const model::Model& model, const tokenizer::Tokenizer& tokenizer,
         std::unique_ptr<model::Runner> runner, EngineOptions options);
  /// shutdown() without grace.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request. Throws QueueFull; ShuttingDown; and Error for a request that is wrong in itself (empty
  /// or too long a prompt, a token out of range, sampler settings that are no numbers).
  std::shared_ptr<Answer> submit(Request request);

  /// Takes no more requests; those accepted have `grace` to finish and are then cancelled; what is kept is
  /// written to the state folder. Returns when all is done.
  void shutdown(std::chrono::milliseconds grace);

  /// Most tokens of a prompt and its answer together.
  int capacity() const;
  /// As of a moment ago, at most the duration of a pass.
  Statistics statistics() const;
  /// As of a moment ago; the first picture, and those after a pause of some seconds, may be older.
  ExpertMap expert_map() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redlite::session
