#pragma once

// Red Lite as a library: open a model, make a session, generate. Link with redlite::redlite (CMake package
// redlite).
//
//   redlite::Model model("model.gguf");
//   redlite::Session session(model, {.cache_mib = 4096});
//   auto answer = session.generate(model.chat_prompt({{"user", "Who are you?"}}), {.max_tokens = 200});
//   while (auto piece = answer.next()) std::cout << piece->text << std::flush;
//
// Everything throws redlite::Error for what files, arguments or the machine cause.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <redlite/error.h>

namespace redlite {

using Token = int32_t;

/// What a model is, as its file says.
struct ModelInfo {
  std::string path;
  std::string name;          ///< maybe empty
  std::string architecture;  ///< "qwen3next", ...
  int n_layers = 0;
  int n_embd = 0;
  int n_vocab = 0;
  int n_experts = 0;       ///< of each layer
  int n_experts_used = 0;  ///< of each token, in each layer
  int context = 0;         ///< most tokens the model was made for
  uint64_t dense_bytes = 0;
  uint64_t expert_bytes = 0;  ///< of all routed experts
};

struct TensorInfo {
  std::string name;             ///< "blk.0.ffn_gate_exps.weight", ...
  std::string type;             ///< "IQ2_XXS", ...
  std::vector<uint64_t> shape;  ///< GGUF's order: the length of a row first
  uint64_t bytes = 0;
};

/// A message of a conversation; the role is "system", "user" or "assistant".
struct Message {
  std::string role, content;
};

/// An open model file: configuration, tokenizer, chat template, tensors. Weights are mapped, not read.
/// Immutable and thread-safe.
class REDLITE_API Model {
 public:
  /// Any file of a split set will do.
  explicit Model(const std::string& path);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelInfo& info() const;

  /// Text to ids; with `special`, control tokens written in the text become theirs.
  std::vector<Token> tokenize(std::string_view text, bool special = false) const;
  /// The bytes of tokens; control tokens are left out unless `special`.
  std::string detokenize(std::span<const Token> tokens, bool special = false) const;
  /// Whether a token ends an answer.
  bool is_end(Token token) const;

  /// A conversation as the model's own chat template writes it, up to where the answer begins.
  std::vector<Token> chat_prompt(const std::vector<Message>& messages) const;
  /// The same for messages and tools as JSON in the shape of the OpenAI API; `tools` may be empty.
  std::vector<Token> chat_prompt_json(std::string_view messages, std::string_view tools = {}) const;

  std::vector<TensorInfo> tensors() const;
  /// The values of a tensor, rows one after another, exactly as its format defines them.
  std::vector<float> dequantize(std::string_view tensor) const;

 private:
  friend class Session;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SessionOptions {
  std::string backend = "cpu";          ///< "cpu", "cuda", "emulator" or "reference"
  std::optional<uint64_t> cache_mib{};  ///< memory for routed experts; nullopt: what is free
  int context = 4096;                   ///< most tokens of the sequence
  int threads = 0;                      ///< 0: one for each core
  bool prefetch = true;                 ///< read the experts that the next layer will probably need
  bool half_kv = true;                  ///< keys and values in binary16
};

/// How tokens are chosen. Names, order and arithmetic as in llama.cpp.
struct GenerateOptions {
  int max_tokens = 256;
  float temperature = 0;  ///< 0: the likeliest token each time
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint32_t seed = 0;
  std::vector<std::string> stop{};  ///< the answer ends before the first of these texts
  bool ignore_end = false;          ///< go on past end tokens
};

/// A token of an answer and the text that it completes (valid UTF-8, maybe empty).
struct Piece {
  Token token = 0;
  std::string text;
};

/// Counters of the expert cache since the session began (CPU; otherwise 0).
struct CacheStatistics {
  uint64_t hits = 0, misses = 0, late = 0, prefetched = 0, bytes_read = 0;
  double stall_seconds = 0;
};

/// Which experts the router chose.
struct RoutingTrace {
  int n_layers = 0, n_experts_used = 0;
  std::vector<int32_t> experts;  ///< [token][layer][n_experts_used], best first
};

/// One sequence of tokens and the state behind it. Not thread-safe. The model must outlive it.
class REDLITE_API Session {
 public:
  explicit Session(const Model& model, const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Appends tokens and returns the logits behind the last one, [n_vocab], or behind each, [n][n_vocab]. The
  /// values are valid until the next call.
  std::span<const float> forward(std::span<const Token> tokens, bool all = false);

  /// An answer on its way. It lives no longer than its session, which is used for nothing else meanwhile.
  class REDLITE_API Answer {
   public:
    ~Answer();
    Answer(Answer&&) noexcept;
    Answer& operator=(Answer&&) noexcept;
    /// The next piece; nullopt at the end.
    std::optional<Piece> next();
    /// Why it ended: "end", "length" or "stop"; empty before.
    std::string_view finish_reason() const;

   private:
    friend class Session;
    struct Impl;
    explicit Answer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };
  /// Appends a prompt and then, piece by piece, the answer to it. What follows continues behind both.
  Answer generate(std::span<const Token> prompt, const GenerateOptions& options = {});

  int position() const;  ///< tokens of the sequence
  int capacity() const;
  void reset();  ///< back to the empty sequence

  CacheStatistics cache_statistics() const;
  /// Records which experts are chosen from now on, or stops to.
  void record_routing(bool on);
  /// What was recorded since the last call.
  RoutingTrace take_routing();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "0.1.0"
REDLITE_API std::string_view version();

}  // namespace redlite
