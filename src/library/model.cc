#include "library/model_impl.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/quote.h"
#include "quant/decode.h"

namespace redlite {
namespace {

ModelInfo describe(const model::Model& model) {
  const model::Config& config = model.config();
  return {.path = model.path(),
          .name = model.file().get_string("general.name").value_or(""),
          .architecture = config.architecture,
          .n_layers = config.n_layers,
          .n_embd = config.n_embd,
          .n_vocab = config.n_vocab,
          .n_experts = config.n_experts,
          .n_experts_used = config.n_experts_used,
          .context = config.context_length,
          .dense_bytes = model.dense_bytes(),
          .expert_bytes = model.expert_bytes()};
}

nlohmann::ordered_json parse(std::string_view text, const char* what) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_array()) fail("{}: give a JSON array", what);
  return json;
}

}  // namespace

Model::Model(const std::string& path) : impl_(std::make_unique<Impl>(path)) {
  impl_->info = describe(impl_->model);
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelInfo& Model::info() const {
  return impl_->info;
}

std::vector<Token> Model::tokenize(std::string_view text, bool special) const {
  return impl_->tokenizer.encode(text, special);
}

std::string Model::detokenize(std::span<const Token> tokens, bool special) const {
  std::string text;
  for (const Token token : tokens) text += impl_->tokenizer.piece(token, special);
  return text;
}

bool Model::is_end(Token token) const {
  return impl_->tokenizer.is_end(token);
}

std::vector<Token> Model::chat_prompt(const std::vector<Message>& messages) const {
  chat::Conversation conversation;
  for (const auto& [role, content] : messages)
    conversation.messages.push_back({{"role", role}, {"content", content}});
  return chat::encode(impl_->tokenizer, chat::Renderer(impl_->model.file()).render(conversation));
}

std::vector<Token> Model::chat_prompt_json(std::string_view messages, std::string_view tools) const {
  chat::Conversation conversation;
  conversation.messages = parse(messages, "messages");
  if (!tools.empty()) conversation.tools = parse(tools, "tools");
  return chat::encode(impl_->tokenizer, chat::Renderer(impl_->model.file()).render(conversation));
}

std::vector<TensorInfo> Model::tensors() const {
  std::vector<TensorInfo> all;
  for (const gguf::TensorInfo& tensor : impl_->model.file().tensors())
    all.push_back({tensor.name, std::string(quant::name(tensor.type)), tensor.shape, tensor.bytes});
  return all;
}

std::vector<float> Model::dequantize(std::string_view name) const {
  const gguf::File& file = impl_->model.file();
  const gguf::TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) fail("{}: there is no tensor {}", file.path(), quote(name));
  size_t values = 1;
  for (const uint64_t size : tensor->shape) values *= size;
  std::vector<float> out(values);
  quant::decode(tensor->type, file.data(*tensor).data(), out.data(), values);
  return out;
}

std::string_view version() {
  return REDLITE_VERSION;
}

}  // namespace redlite
