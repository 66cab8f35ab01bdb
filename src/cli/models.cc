#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/quote.h"
#include "cli/commands.h"
#include "cli/model_choice.h"
#include "model/model.h"
#include "quant/finite.h"

namespace redlite::cli {
namespace {

using nlohmann::ordered_json;

struct ModelsCommand {
  std::vector<std::string> places;  ///< folders or files
  bool json = false;
};

struct ModelFile {
  std::string path;
  bool named;  ///< itself, not the folder that it lies in
};

/// The files of the places named, or of ~/.redlite/models.
std::vector<ModelFile> files_of(const std::vector<std::string>& places) {
  std::vector<ModelFile> files;
  const auto add = [&](const std::string& folder) {
    for (const std::string& path : model_files(folder)) files.push_back({path, false});
  };
  if (places.empty()) add(user_file("models"));
  for (const std::string& place : places) {
    std::error_code error;
    if (std::filesystem::is_directory(place, error)) {
      add(place);
    } else {
      files.push_back({place, true});
    }
  }
  return files;
}

std::string text_of_key(const gguf::File& file, std::string_view key) {
  const gguf::Value* value = file.find_value(key);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? *text : "";
}

/// The type that most bytes of the routed experts have.
std::string_view main_type(const model::Model& model) {
  std::map<quant::Type, uint64_t> bytes;
  for (const model::ExpertLayer& layer : model.experts()) {
    for (const model::ExpertTensor* tensor : {&layer.gate, &layer.up, &layer.down})
      bytes[tensor->type] += tensor->expert_bytes;
  }
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? "" : quant::name(most->first);
}

ordered_json describe_model(const std::string& path) {
  ordered_json json = {{"path", path}};
  try {
    const model::Model model(path);
    uint64_t bytes = 0;
    for (const MappedFile& shard : model.file().shards()) bytes += shard.file().size();
    json["name"] = text_of_key(model.file(), "general.name");
    json["architecture"] = model.config().architecture;
    json["bytes"] = bytes;
    json["files"] = model.file().shards().size();
    json["type"] = main_type(model);
    json["error"] = nullptr;
  } catch (const Error& e) {
    json["error"] = e.what();
  }
  return json;
}

void list_models(const ModelsCommand& c) {
  const std::vector<ModelFile> files = files_of(c.places);
  if (files.empty() && !c.json) {
    fmt::print("no models in {}; put GGUF files there, or name other folders\n",
               one_line(c.places.empty() ? models_folder() : fmt::format("{}", fmt::join(c.places, ", "))));
    return;
  }
  ordered_json list = ordered_json::array();
  size_t n_bad = 0;
  for (const auto& [path, named] : files) {
    const ordered_json model = describe_model(path);
    list.push_back(model);
    if (named && !model["error"].is_null()) ++n_bad;
    if (c.json) continue;
    if (!model["error"].is_null()) {
      fmt::print("{}\n  cannot be used: {}\n", one_line(path), one_line(model["error"].get<std::string>()));
      continue;
    }
    const std::string name = quote(model["name"].get<std::string>());
    fmt::print("{}\n  {}, {}, {:.1f} MiB, experts in {}\n", one_line(path), name.substr(1, name.size() - 2),
               model["architecture"].get<std::string>(),
               static_cast<double>(model["bytes"].get<uint64_t>()) / kMiB, model["type"].get<std::string>());
  }
  if (c.json) fmt::print("{}\n", list.dump(2, ' ', false, ordered_json::error_handler_t::replace));
  if (n_bad > 0) fail("{} of the files named cannot be used", n_bad);
}

/// Reads a tensor and checks its values. Throws Error.
void verify_tensor(const gguf::File& file, const gguf::TensorInfo& tensor, std::vector<std::byte>& buffer,
                   Progress& bar) {
  // All zeros in a matrix of some size is what an interrupted download leaves.
  constexpr uint64_t kLarge = 1 << 16;
  const quant::TypeInfo& type = quant::info(tensor.type);
  const File& shard = file.shards()[tensor.shard].file();
  const uint64_t piece = buffer.size() / type.block_bytes * type.block_bytes;
  bool zero = tensor.bytes >= kLarge;
  for (uint64_t at = 0; at < tensor.bytes; at += piece) {
    const auto bytes = std::span(buffer).first(std::min(piece, tensor.bytes - at));
    shard.read_exactly(tensor.offset + at, bytes);
    if (const auto block = quant::first_not_finite(tensor.type, bytes)) {
      fail("{}: {}: the {} block at offset {} has a scale that is no number: the file is damaged",
           shard.path(), quote(tensor.name), type.name, tensor.offset + at + *block * type.block_bytes);
    }
    zero = zero && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
    bar.advance(bytes.size());
  }
  if (zero) fail("{}: {}: all zeros: the file is not complete", shard.path(), quote(tensor.name));
}

/// Throws Error with what is wrong with a file.
uint64_t verify_model(const std::string& path) {
  const model::Model model(path);
  uint64_t bytes = 0;
  for (const gguf::TensorInfo& tensor : model.file().tensors()) bytes += tensor.bytes;
  Progress bar("verifying", bytes);
  std::vector<std::byte> buffer(8 * kMiB);
  for (const gguf::TensorInfo& tensor : model.file().tensors())
    verify_tensor(model.file(), tensor, buffer, bar);
  return bytes;
}

void verify_models(const ModelsCommand& c) {
  const std::vector<ModelFile> files = files_of(c.places);
  if (files.empty()) fail("no models to verify: name a file or a folder");
  ordered_json list = ordered_json::array();
  size_t n_bad = 0;
  for (const auto& [path, named] : files) {
    try {
      const uint64_t bytes = verify_model(path);
      list.push_back({{"path", path}, {"bytes_read", bytes}, {"error", nullptr}});
      if (!c.json)
        fmt::print("{}: all {:.1f} MiB of weights are in order\n", one_line(path),
                   static_cast<double>(bytes) / kMiB);
    } catch (const Error& e) {
      ++n_bad;
      list.push_back({{"path", path}, {"error", e.what()}});
      if (!c.json) fmt::print("{}\n", one_line(e.what()));
    }
    std::fflush(stdout);
  }
  if (c.json) fmt::print("{}\n", list.dump(2, ' ', false, ordered_json::error_handler_t::replace));
  if (n_bad > 0) fail("{} of {} models cannot be used as they are", n_bad, files.size());
}

}  // namespace

void add_models(CLI::App& app) {
  auto c = std::make_shared<ModelsCommand>();
  CLI::App* command =
      app.add_subcommand("models", "List the models in ~/.redlite/models or elsewhere, or verify them");
  const auto add_options = [&](CLI::App* to) {
    to->add_option("places", c->places, "folders or GGUF files; default: ~/.redlite/models")
        ->type_name("PLACE");
    to->add_flag("--json", c->json, "print it as JSON");
  };
  CLI::App* verify =
      command->add_subcommand("verify", "Read models whole and check every block of their weights");
  add_options(verify);
  add_options(command);
  command->callback([=] {
    if (verify->parsed()) {
      verify_models(*c);
    } else {
      list_models(*c);
    }
  });
}

}  // namespace redlite::cli
