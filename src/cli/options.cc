#include "cli/options.h"

#include <charconv>

#include "base/error.h"
#include "base/file.h"

namespace redlite::cli {
namespace {

/// CLI11 validator: a whole number, "full" or "auto".
std::string check_cache_size(const std::string& text) {
  if (text == "full" || text == "auto") return "";
  uint64_t mib = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mib);
  const bool number = error == std::errc() && end == text.data() + text.size() && mib <= (uint64_t{1} << 40);
  return number ? "" : fmt::format("'{}' is not a number of MiB, 'full' or 'auto'", text);
}

/// CLI11 validator: a number of layers or "auto".
std::string check_lookahead(const std::string& text) {
  if (text == "auto") return "";
  int layers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layers);
  const bool number = error == std::errc() && end == text.data() + text.size() && layers >= 1;
  return number ? "" : fmt::format("'{}' is not a number of layers or 'auto'", text);
}
CLI::Validator lookahead() {
  return CLI::Validator(check_lookahead, "");
}

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& words) {
  return CLI::IsMember(words).description("");
}

CLI::Validator cache_size() {
  return CLI::Validator(check_cache_size, "");
}

void add_runner_options(CLI::App& command, engine::RunnerOptions& options) {
  const char* group = "Engine";
  command
      .add_option("--backend", options.backend,
                  "cpu; cuda; emulator: the GPU's kernels on the CPU; reference: double precision, slow")
      ->type_name("cpu|cuda|emulator|reference")
      ->check(one_of({"cpu", "cuda", "emulator", "reference"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--cache-mib", options.cache_mib,
                  "memory for routed experts: MiB, full (all of them, mapped) or auto (what is free)")
      ->type_name("N|full|auto")
      ->check(cache_size())
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--residency", options.residency,
                  "GPU: all experts in its memory (full), in host memory with a cache that the GPU fills "
                  "(device), or on disk with caches that the host fills (host)")
      ->type_name("auto|full|device|host")
      ->check(one_of({"auto", "full", "device", "host"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--host-cache-mib", options.host_cache_mib,
                  "--residency host: host memory between disk and GPU; full: the whole file, mapped")
      ->type_name("N|full|auto")
      ->check(cache_size())
      ->capture_default_str()
      ->group(group);
  if (command.get_option_no_throw("--decode") == nullptr) {  // bench's own is how many tokens
    command
        .add_option(
            "--decode", options.decode,
            "--residency host: the CPU decides after each layer (sync), or where an expert is missing "
            "(routed)")
        ->type_name("auto|routed|sync")
        ->check(one_of({"auto", "routed", "sync"}))
        ->capture_default_str()
        ->group(group);
  }
  command.add_option("--lookahead", options.lookahead, "--residency host: layers submitted ahead of the CPU")
      ->type_name("N|auto")
      ->check(lookahead())
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--prefetch", options.prefetch, "load the experts that the next layer will probably need")
      ->type_name("on|off")
      ->check(one_of({"on", "off"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--io", options.io,
                  "read experts past the page cache (direct), through it (buffered), or as fits (auto)")
      ->type_name("auto|direct|buffered")
      ->check(one_of({"auto", "direct", "buffered"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--kv", options.kv, "type of the attention cache: f32 or f16")
      ->type_name("f32|f16")
      ->check(one_of({"f32", "f16"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--context", options.context, "most tokens in a sequence; 0: what this call needs")
      ->type_name("N")
      ->check(in_range(0, 1 << 24))
      ->capture_default_str()
      ->group(group);
  command.add_option("--batch", options.batch, "most prompt tokens computed at once")
      ->type_name("N")
      ->check(in_range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  command.add_option("--threads", options.threads, "0: one for each core")
      ->type_name("N")
      ->check(in_range(0, 1024))
      ->capture_default_str()
      ->group(group);
  command.add_option("--kernels", options.kernels, "instruction set by name; default: the best one here")
      ->type_name("NAME")
      ->group(group);
}

std::vector<model::Token> parse_tokens(const std::string& text, int n_vocab) {
  const bool from_file = text.starts_with('@');
  const std::string list = from_file ? read_text_file(text.substr(1)) : text;
  const std::string where = from_file ? text.substr(1) : "--tokens";
  std::vector<model::Token> tokens;
  const char* p = list.data();
  const char* const end = p + list.size();
  while (p < end) {
    if (std::string_view(" \t\r\n,[]").find(*p) != std::string_view::npos) {
      ++p;
      continue;
    }
    model::Token token = 0;
    const auto [next, error] = std::from_chars(p, end, token);
    if (error != std::errc()) fail("{}: expected a token id at character {}", where, p - list.data());
    if (token < 0 || token >= n_vocab)
      fail("{}: token id {} is outside the model's vocabulary of {}", where, token, n_vocab);
    tokens.push_back(token);
    p = next;
  }
  if (tokens.empty()) fail("{}: no token ids given", where);
  return tokens;
}

}  // namespace redlite::cli
