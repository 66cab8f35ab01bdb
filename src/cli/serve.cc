#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "bench/version.h"
#include "cli/commands.h"
#include "cli/generation_options.h"
#include "cli/options.h"
#include "engine/open_runner.h"
#include "http/server.h"
#include "model/model.h"
#include "server/service.h"
#include "session/engine.h"
#include "tokenizer/tokenizer.h"

namespace redlite::cli {
namespace {

constexpr int kDefaultContext = 32768;

struct ServeCommand {
  std::string model, name, chat_template;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string api_key, api_key_file;
  bool no_api_key = false;
  int parallel = 1, queue = 64;
  std::string state_dir;
  uint64_t state_mib = 1024, state_dir_mib = 8192;
  int grace = 10;
  engine::SamplerOptions sampler;
  bool seed_given = false;
  engine::RunnerOptions runner;
};

/// SIGINT and SIGTERM, kept back from all threads that are started while this object lives.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  ~EndSignals() { release(); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  void wait() const {
    int which = 0;
    sigwait(&set_, &which);
  }
  /// The next one ends the program.
  void release() const { pthread_sigmask(SIG_UNBLOCK, &set_, nullptr); }

 private:
  sigset_t set_{};
};

void add_key(std::vector<std::string>& keys, const std::string& key, const std::string& where) {
  const auto printable = [](char c) { return c > 0x20 && c < 0x7f; };
  if (key.empty() || !std::all_of(key.begin(), key.end(), printable))
    fail("{}: an API key is made of printable ASCII characters without blanks", where);
  keys.push_back(key);
}

std::vector<std::string> read_keys(const ServeCommand& c) {
  std::vector<std::string> keys;
  if (!c.api_key.empty()) add_key(keys, c.api_key, "--api-key");
  if (const char* key = std::getenv("REDLITE_API_KEY")) add_key(keys, key, "REDLITE_API_KEY");
  if (!c.api_key_file.empty()) {
    const std::string text = read_text_file(c.api_key_file);
    size_t begin = 0, found = 0;
    while (begin < text.size()) {
      size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (line.empty()) continue;
      add_key(keys, line, c.api_key_file);
      ++found;
    }
    if (found == 0) fail("{}: has no API key in it: write one a line", c.api_key_file);
  }
  if (c.no_api_key) {
    if (!keys.empty()) fail("--no-api-key contradicts the API key that is given");
  } else if (keys.empty() && !server::is_loopback(c.host)) {
    fail(
        "--host {} can be reached from other machines: give --api-key-file, REDLITE_API_KEY or --api-key, or "
        "say "
        "--no-api-key if everybody may use this server",
        c.host);
  }
  return keys;
}

/// The file's name without what every model file has at its end.
std::string model_name(const ServeCommand& c) {
  return c.name.empty() ? std::filesystem::path(c.model).stem().string() : c.name;
}

session::Reporter reporter(const engine::OpenRunner& open, const model::Config& config) {
  const cpu::CpuRunner* cpu = open.cpu;
  if (const gpu::GpuRunner* gpu = open.gpu) {
    return [gpu, &config](session::RunnerReport& report, bool with_experts) {
      report.cache = gpu->cache_stats();
      if (with_experts) report.experts = {config.n_layers, config.n_experts, gpu->expert_uses()};
    };
  }
  if (cpu == nullptr) return nullptr;
  return [cpu, &config](session::RunnerReport& report, bool with_experts) {
    report.cache = cpu->cache_stats();
    const cpu::StageTimes times = cpu->stage_times();
    report.stage_seconds = {{"embedding", times.embedding}, {"attention", times.attention},
                            {"delta_net", times.delta_net}, {"router", times.router},
                            {"experts", times.experts},     {"output", times.output}};
    if (with_experts) report.experts = {config.n_layers, config.n_experts, cpu->expert_uses()};
  };
}

void serve(const ServeCommand& c) {
  server::ServiceOptions service_options;
  service_options.access.keys = read_keys(c);
  service_options.access.host = c.host;
  service_options.defaults.sampler = c.sampler;
  service_options.defaults.random_seed = !c.seed_given;
  service_options.model_name = model_name(c);
  service_options.version = REDLITE_VERSION;

  const EndSignals signals;
  const model::Model model(c.model);
  const tokenizer::Tokenizer tokenizer(model.file());
  const int most = model.config().context_length;
  const int context = c.runner.context != 0 ? c.runner.context : std::min(most, kDefaultContext);
  if (context > most) fail("--context {} exceeds the model's context of {}", context, most);
  if (!c.chat_template.empty()) {
    // Clients are told what is wrong with it, but not where it lies.
    const std::string name = std::filesystem::path(c.chat_template).filename();
    service_options.renderer =
        std::make_shared<chat::Renderer>(model.file(), name, read_text_file(c.chat_template));
  }
  engine::OpenRunner open = open_runner(model, c.runner, context);

  session::EngineOptions engine_options;
  engine_options.parallel = c.parallel;
  engine_options.max_queued = c.queue;
  engine_options.state_bytes = c.state_mib * kMiB;
  engine_options.state_dir = c.state_dir;
  engine_options.state_dir_bytes = c.state_dir_mib * kMiB;
  engine_options.build = fmt::format("{} {}", bench::version(), bench::commit());
  engine_options.log = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  engine_options.report = reporter(open, model.config());
  session::Engine engine(model, tokenizer, std::move(open.runner), engine_options);
  server::Service service(model, tokenizer, engine, std::move(service_options));
  http::Server http(
      c.host, c.port, {}, [&](http::Exchange& exchange) { service.handle(exchange); },
      [&](http::Exchange& exchange, const http::Refused& refused) { service.refuse(exchange, refused); });
  fmt::print(stderr, "{}: context {}, expert cache: {}\n", c.model, context, open.cache_description);
  const std::string address = c.host.find(':') == std::string::npos ? c.host : "[" + c.host + "]";
  fmt::print(stderr, "listening at http://{}:{}\n", address, http.port());

  signals.wait();
  fmt::print(stderr, "shutting down; answers under way have {} seconds (a second signal ends at once)\n",
             c.grace);
  signals.release();
  engine.shutdown(std::chrono::seconds(c.grace));
  http.stop(std::chrono::seconds(2));
}

}  // namespace

void add_serve(CLI::App& app) {
  auto c = std::make_shared<ServeCommand>();
  // What the makers of the models recommend.
  c->sampler.temperature = 0.7f;
  c->sampler.top_k = 20;
  c->sampler.top_p = 0.8f;
  c->sampler.min_p = 0;
  CLI::App* command =
      app.add_subcommand("serve", "Answer over HTTP: OpenAI's and Anthropic's APIs, and a page at /");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->type_name("MODEL");
  command->add_option("--host", c->host, "address to listen at")->type_name("ADDRESS")->capture_default_str();
  command->add_option("--port", c->port, "port; 0: any free one")
      ->type_name("N")
      ->check(in_range(0, 65535))
      ->capture_default_str();
  command->add_option("--name", c->name, "what clients call the model; by default its file's name")
      ->type_name("NAME");

  command
      ->add_option("--chat-template", c->chat_template,
                   "file with a chat template (Jinja) to use instead of the model's")
      ->type_name("FILE");

  const char* access = "Access";
  command
      ->add_option("--api-key", c->api_key,
                   "key that clients must send; others on this machine can see it, so better use:")
      ->type_name("KEY")
      ->group(access);
  command->add_option("--api-key-file", c->api_key_file, "file with one key a line; or set REDLITE_API_KEY")
      ->type_name("FILE")
      ->group(access);
  command->add_flag("--no-api-key", c->no_api_key, "let everybody in who can reach --host")->group(access);

  const char* load = "Several at a time";
  command->add_option("--parallel", c->parallel, "answers computed at a time")
      ->type_name("N")
      ->check(in_range(1, 64))
      ->capture_default_str()
      ->group(load);
  command->add_option("--queue", c->queue, "requests that may wait")
      ->type_name("N")
      ->check(in_range(0, 4096))
      ->capture_default_str()
      ->group(load);
  command->add_option("--state-mib", c->state_mib, "memory for states of conversations")
      ->type_name("MIB")
      ->check(in_range(0, 1 << 24))
      ->capture_default_str()
      ->group(load);
  command->add_option("--state-dir", c->state_dir, "folder that keeps them over a restart")
      ->type_name("FOLDER")
      ->group(load);
  command->add_option("--state-dir-mib", c->state_dir_mib, "most that it may hold")
      ->type_name("MIB")
      ->check(in_range(0, 1 << 24))
      ->capture_default_str()
      ->group(load);
  command->add_option("--grace", c->grace, "seconds that answers have to end when the server is stopped")
      ->type_name("S")
      ->check(in_range(0, 3600))
      ->capture_default_str()
      ->group(load);

  add_sampler_options(*command, c->sampler);
  add_runner_options(*command, c->runner);
  command->callback([=] {
    c->seed_given = command->count("--seed") > 0;
    serve(*c);
  });
}

}  // namespace redlite::cli
