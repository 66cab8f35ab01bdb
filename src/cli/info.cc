#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/quote.h"
#include "cli/commands.h"
#include "experts/cache.h"
#include "model/model.h"

namespace redlite::cli {
namespace {

using nlohmann::ordered_json;

/// What a tensor is for, in the order of the table.
constexpr std::string_view kRoles[] = {
    "experts gate", "experts up", "experts gate+up", "experts down", "shared expert",  "router",
    "attention",    "DeltaNet",   "token embedding", "output",       "norms, vectors", "MTP (not used)",
};

/// The block number in front of a tensor's name, taken off it; -1 if there is none.
int take_block(std::string_view& name) {
  if (!name.starts_with("blk.")) return -1;
  int block = -1;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), block);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return -1;
  name.remove_prefix(static_cast<size_t>(end - name.data()) + 1);
  return block;
}

std::string_view role_of(std::string_view name, int block, const model::Config& config) {
  if (block >= config.n_layers) return "MTP (not used)";
  if (name == "token_embd.weight") return "token embedding";
  if (name == "output.weight") return "output";
  if (name == "ffn_gate_exps.weight") return "experts gate";
  if (name == "ffn_up_exps.weight") return "experts up";
  if (name == "ffn_gate_up_exps.weight") return "experts gate+up";
  if (name == "ffn_down_exps.weight") return "experts down";
  if (name == "ffn_gate_inp.weight") return "router";
  if (name.find("_shexp") != std::string_view::npos) return "shared expert";
  if (name.find("norm") != std::string_view::npos || name.find("conv1d") != std::string_view::npos ||
      name == "ssm_a" || name == "ssm_dt.bias") {
    return "norms, vectors";
  }
  const bool attention =
      config.layers[static_cast<size_t>(std::max(block, 0))] == model::LayerKind::Attention;
  return attention ? "attention" : "DeltaNet";
}

/// Tensors of one role and type.
struct Group {
  std::vector<int> blocks;
  uint64_t parameters = 0;
  uint64_t bytes = 0;

  size_t n_layers() {
    std::ranges::sort(blocks);
    return static_cast<size_t>(std::unique(blocks.begin(), blocks.end()) - blocks.begin());
  }
};

uint64_t n_values(const gguf::TensorInfo& tensor) {
  const quant::TypeInfo& type = quant::info(tensor.type);
  return tensor.bytes / type.block_bytes * type.block_values;
}

ordered_json weights_json(const model::Model& model) {
  std::map<std::pair<std::string_view, quant::Type>, Group> groups;
  for (const gguf::TensorInfo& tensor : model.file().tensors()) {
    std::string_view name = tensor.name;
    const int block = take_block(name);
    Group& group = groups[{role_of(name, block, model.config()), tensor.type}];
    if (block >= 0) group.blocks.push_back(block);
    group.parameters += n_values(tensor);
    group.bytes += tensor.bytes;
  }
  ordered_json weights = ordered_json::array();
  for (const std::string_view role : kRoles) {
    for (auto& [key, group] : groups) {
      if (key.first != role) continue;
      weights.push_back({{"role", role},
                         {"type", quant::name(key.second)},
                         {"layers", group.n_layers()},
                         {"parameters", group.parameters},
                         {"bytes", group.bytes}});
    }
  }
  return weights;
}

/// Distinct sizes of a layer's experts, smallest first.
ordered_json size_classes_json(const model::Model& model) {
  std::map<uint64_t, int> layers;
  for (const model::ExpertLayer& layer : model.experts()) ++layers[layer.triplet_bytes()];
  ordered_json classes = ordered_json::array();
  for (const auto& [bytes, n] : layers) classes.push_back({{"expert_bytes", bytes}, {"layers", n}});
  return classes;
}

int64_t count_layers(const model::Config& config, model::LayerKind kind) {
  return std::ranges::count(config.layers, kind);
}

ordered_json memory_json(const model::Model& model) {
  const model::Config& c = model.config();
  const int64_t n_attention = count_layers(c, model::LayerKind::Attention);
  const int64_t n_delta = count_layers(c, model::LayerKind::DeltaNet);
  const int64_t kv_values = n_attention * 2 * c.n_kv_heads * c.head_dim;
  const int64_t state_values = int64_t{c.n_v_heads} * c.state_dim * c.state_dim +
                               int64_t{std::max(c.conv_kernel - 1, 0)} * c.conv_dim();
  return {{"dense_bytes", model.dense_bytes()},
          {"expert_bytes", model.expert_bytes()},
          {"size_classes", size_classes_json(model)},
          {"full_cache_bytes", experts::ExpertCache::full_bytes(model)},
          {"least_cache_bytes", experts::ExpertCache::minimum_bytes(model)},
          {"kv_bytes_per_position", {{"f32", kv_values * 4}, {"f16", kv_values * 2}}},
          {"delta_net_state_bytes", n_delta * state_values * 4}};
}

ordered_json config_json(const model::Model& model) {
  const model::Config& c = model.config();
  ordered_json json = {{"architecture", c.architecture},
                       {"layers", c.n_layers},
                       {"attention_layers", count_layers(c, model::LayerKind::Attention)},
                       {"delta_net_layers", count_layers(c, model::LayerKind::DeltaNet)},
                       {"width", c.n_embd},
                       {"vocabulary", c.n_vocab},
                       {"context_length", c.context_length},
                       {"attention",
                        {{"heads", c.n_heads},
                         {"kv_heads", c.n_kv_heads},
                         {"head_width", c.head_dim},
                         {"rope_dims", c.rope_dims},
                         {"rope_base", c.rope_base},
                         {"gated", c.gated_attention}}},
                       {"experts",
                        {{"count", c.n_experts},
                         {"used", c.n_experts_used},
                         {"width", c.expert_ff},
                         {"shared_width", c.shared_ff}}}};
  if (count_layers(c, model::LayerKind::DeltaNet) > 0) {
    json["delta_net"] = {{"k_heads", c.n_k_heads},
                         {"v_heads", c.n_v_heads},
                         {"state_width", c.state_dim},
                         {"conv_kernel", c.conv_kernel}};
  }
  return json;
}

ordered_json text_json(const gguf::File& file, std::string_view key) {
  const gguf::Value* value = file.find_value(key);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? ordered_json(*text) : ordered_json(nullptr);
}

/// How `redlite synth` made a file: its redlite.synth.* keys; empty for other files.
ordered_json synthetic_json(const gguf::File& file) {
  constexpr std::string_view kPrefix = "redlite.synth.";
  ordered_json json = ordered_json::object();
  for (auto it = file.metadata().lower_bound(kPrefix);
       it != file.metadata().end() && it->first.starts_with(kPrefix); ++it) {
    std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (!std::is_same_v<T, std::shared_ptr<const gguf::Array>>)
            json[it->first.substr(kPrefix.size())] = value;
        },
        it->second);
  }
  return json;
}

ordered_json report(const model::Model& model) {
  const gguf::File& file = model.file();
  uint64_t file_bytes = 0;
  for (const MappedFile& shard : file.shards()) file_bytes += shard.file().size();
  ordered_json json = {{"path", model.path()},
                       {"name", text_json(file, "general.name")},
                       {"files", file.shards().size()},
                       {"file_bytes", file_bytes},
                       {"gguf_version", file.version()}};
  json.update(config_json(model));
  json["tokenizer"] = {{"model", text_json(file, "tokenizer.ggml.model")},
                       {"pre", text_json(file, "tokenizer.ggml.pre")},
                       {"chat_template", file.find_value("tokenizer.chat_template") != nullptr}};
  json["weights"] = weights_json(model);
  json["memory"] = memory_json(model);
  if (ordered_json synthetic = synthetic_json(file); !synthetic.empty())
    json["synthetic"] = std::move(synthetic);
  // Of a token: every weight but the embedding table, of which one row is read, and the experts not selected.
  const model::Config& c = model.config();
  uint64_t parameters = 0, active = 0;
  bool mtp = false;
  for (const ordered_json& group : json["weights"]) {
    const auto role = group["role"].get<std::string>();
    const auto n = group["parameters"].get<uint64_t>();
    if (role.starts_with("MTP")) {
      mtp = true;
      continue;
    }
    parameters += n;
    if (role.starts_with("experts")) {
      active += n / static_cast<uint64_t>(c.n_experts) * static_cast<uint64_t>(c.n_experts_used);
    } else if (role != "token embedding" || file.find("output.weight") == nullptr) {
      active += n;
    }
  }
  json["mtp"] = mtp;
  json["parameters"] = parameters;
  json["active_parameters"] = active;
  return json;
}

std::string bytes_text(uint64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes < 10 * 1024) return fmt::format("{} B", bytes);
  if (bytes < (10 << 20)) return fmt::format("{:.1f} KiB", b / 1024);
  if (bytes < (uint64_t{10} << 30)) return fmt::format("{:.1f} MiB", b / (1 << 20));
  return fmt::format("{:.2f} GiB", b / (1 << 30));
}

std::string count_text(uint64_t n) {
  const auto x = static_cast<double>(n);
  if (n < 1'000'000) return fmt::format("{:.0f} k", x / 1e3);
  if (n < 1'000'000'000) return fmt::format("{:.1f} M", x / 1e6);
  return fmt::format("{:.2f} B", x / 1e9);
}

/// A text of the file's choosing made fit for a terminal; a dash for none.
std::string shown(const ordered_json& text) {
  if (!text.is_string()) return "-";
  const std::string quoted = quote(text.get<std::string>());
  return quoted.substr(1, quoted.size() - 2);
}

void print_line(std::string_view label, const std::string& text) {
  fmt::print("  {:<17} {}\n", label, text);
}

void print_weights(const ordered_json& weights) {
  uint64_t total = 0;
  for (const ordered_json& group : weights) total += group["bytes"].get<uint64_t>();
  fmt::print("\nWeights            type      layers        size   share\n");
  std::string last;
  for (const ordered_json& group : weights) {
    const auto role = group["role"].get<std::string>();
    const auto layers = group["layers"].get<int>();
    const auto bytes = group["bytes"].get<uint64_t>();
    fmt::print("  {:<16} {:<9} {:>6}  {:>10} {:>5.1f} %\n", role == last ? "" : role,
               group["type"].get<std::string>(), layers > 0 ? std::to_string(layers) : "", bytes_text(bytes),
               100 * static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(total, 1)));
    last = role;
  }
  fmt::print("  {:<16} {:<9} {:>6}  {:>10}\n", "together", "", "", bytes_text(total));
}

void print_memory(const ordered_json& json) {
  const ordered_json& memory = json["memory"];
  const auto n_experts = json["experts"]["count"].get<uint64_t>();
  fmt::print("\nMemory\n");
  print_line("dense weights", bytes_text(memory["dense_bytes"]));
  std::string classes;
  for (const ordered_json& size : memory["size_classes"]) {
    const auto layers = size["layers"].get<uint64_t>();
    classes += fmt::format("{}{} of {}", classes.empty() ? "" : ", ", layers * n_experts,
                           bytes_text(size["expert_bytes"]));
    if (memory["size_classes"].size() > 1)
      classes += fmt::format(" ({} layer{})", layers, layers == 1 ? "" : "s");
  }
  print_line("experts", fmt::format("{}: {}", bytes_text(memory["expert_bytes"]), classes));
  const auto mib = [](uint64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; };
  print_line("cache for all", fmt::format("--cache-mib {}", mib(memory["full_cache_bytes"])));
  print_line("least cache", fmt::format("--cache-mib {}", mib(memory["least_cache_bytes"])));
  const ordered_json& kv = memory["kv_bytes_per_position"];
  print_line("K/V per position",
             fmt::format("{} (f32), {} (f16)", bytes_text(kv["f32"]), bytes_text(kv["f16"])));
  if (const auto state = memory["delta_net_state_bytes"].get<uint64_t>(); state > 0) {
    print_line("DeltaNet state", bytes_text(state) + " whatever the context");
  }
}

ordered_json tensors_json(const gguf::File& file) {
  ordered_json tensors = ordered_json::array();
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", quant::name(tensor.type)},
                       {"shape", tensor.shape},
                       {"file", file.shards()[tensor.shard].file().path()},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes}});
  }
  return tensors;
}

void print_tensors(const ordered_json& tensors) {
  fmt::print(
      "\nTensors                                  type      shape                      offset        "
      "bytes\n");
  for (const ordered_json& tensor : tensors) {
    fmt::print("  {:<38} {:<9} {:<20} {:>12} {:>12}\n", shown(tensor["name"]),
               tensor["type"].get<std::string>(),
               fmt::format("{}", fmt::join(tensor["shape"].get<std::vector<uint64_t>>(), " x ")),
               tensor["offset"].get<uint64_t>(), tensor["bytes"].get<uint64_t>());
  }
}

void print_report(const ordered_json& json) {
  const auto number = [](const ordered_json& value) { return value.get<int64_t>(); };
  fmt::print("{}\n", one_line(json["path"].get<std::string>()));
  if (json["name"].is_string()) print_line("name", shown(json["name"]));
  const auto n_files = number(json["files"]);
  print_line("file", fmt::format("{}GGUF v{}, {}", n_files > 1 ? fmt::format("{} parts, ", n_files) : "",
                                 number(json["gguf_version"]), bytes_text(json["file_bytes"])));
  print_line("architecture", fmt::format("{}{}", json["architecture"].get<std::string>(),
                                         json["mtp"].get<bool>() ? ", with MTP blocks (not used)" : ""));
  print_line("parameters", fmt::format("{}, {} of them for a token", count_text(json["parameters"]),
                                       count_text(json["active_parameters"])));
  print_line("layers", fmt::format("{}: {} attention, {} DeltaNet; width {}", number(json["layers"]),
                                   number(json["attention_layers"]), number(json["delta_net_layers"]),
                                   number(json["width"])));
  const ordered_json& experts = json["experts"];
  const auto shared = number(experts["shared_width"]);
  print_line("experts",
             fmt::format("{} a layer, {} used, width {}; {}", number(experts["count"]),
                         number(experts["used"]), number(experts["width"]),
                         shared > 0 ? fmt::format("a shared one of width {}", shared) : "none shared"));
  const ordered_json& attention = json["attention"];
  print_line("attention",
             fmt::format("{} heads of {}, {} K/V heads, {}RoPE on {} dimensions, base {:g}",
                         number(attention["heads"]), number(attention["head_width"]),
                         number(attention["kv_heads"]), attention["gated"].get<bool>() ? "gated, " : "",
                         number(attention["rope_dims"]), attention["rope_base"].get<double>()));
  if (json.contains("delta_net")) {
    const ordered_json& delta = json["delta_net"];
    print_line("DeltaNet",
               fmt::format("{} K heads, {} V heads, state {} x {}, convolution over {}",
                           number(delta["k_heads"]), number(delta["v_heads"]), number(delta["state_width"]),
                           number(delta["state_width"]), number(delta["conv_kernel"])));
  }
  print_line("context", fmt::format("{} tokens", number(json["context_length"])));
  const ordered_json& tokenizer = json["tokenizer"];
  print_line("tokenizer", fmt::format("{} / {}, {} tokens, {} chat template", shown(tokenizer["model"]),
                                      shown(tokenizer["pre"]), number(json["vocabulary"]),
                                      tokenizer["chat_template"].get<bool>() ? "with a" : "no"));
  print_weights(json["weights"]);
  print_memory(json);
  if (!json.contains("synthetic")) return;
  fmt::print("\nSynthetic (docs/synthetic-models.md)\n");
  for (const auto& [name, value] : json["synthetic"].items())
    print_line(shown(name), value.is_number_float() ? fmt::format("{:g}", value.get<double>())
                            : value.is_string()     ? shown(value)
                                                    : value.dump());
}

}  // namespace

void add_info(CLI::App& app) {
  struct Options {
    std::string model;
    bool json = false, tensors = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("info", "Show what a model is made of and the memory it needs");
  command->add_option("model", options->model, "GGUF file; any part of a split model stands for all")
      ->required()
      ->type_name("MODEL");
  command->add_flag("--json", options->json, "print it as JSON, sizes in bytes");
  command->add_flag("--tensors", options->tensors, "list every tensor, too");
  command->callback([options] {
    const model::Model model(options->model);
    ordered_json json = report(model);
    if (options->tensors) json["tensors"] = tensors_json(model.file());
    if (options->json) {
      fmt::print("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
    } else {
      print_report(json);
      if (options->tensors) print_tensors(json["tensors"]);
    }
  });
}

}  // namespace redlite::cli
