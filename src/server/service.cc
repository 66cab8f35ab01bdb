#include "server/service.h"

#include <array>
#include <chrono>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "server/answerer.h"
#include "server/api.h"
#include "server/cache_view.h"
#include "server/json.h"
#include "server/metrics.h"
#include "server/openai_fields.h"
#include "server/page.h"

namespace redlite::server {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr std::string_view kEvents = "text/event-stream";
/// How often a stream on which nothing happens shows that it lives: some clients give up after a minute.
constexpr std::chrono::seconds kKeepAlive{15};

/// Sent with everything.
http::Exchange::Headers common_headers() {
  return {{"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cache-Control", "no-store"}};
}

/// Throws when there is nobody left to answer, or no time.
void check_presence(const http::Exchange& x) {
  if (x.client_gone()) throw http::ClientGone("the client is gone");
  if (x.stopping()) throw ApiError::try_again(503, "the server is shutting down", 5);
}

std::string random_id() {
  static constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  thread_local std::random_device source;
  std::string id(24, ' ');
  for (char& c : id) c = kLetters[source() % kLetters.size()];
  return id;
}

}  // namespace

struct Service::Impl {
  Impl(const model::Model& m, const tokenizer::Tokenizer& t, session::Engine& e, ServiceOptions o)
      : model(m),
        tokenizer(t),
        engine(e),
        options(std::move(o)),
        access(options.access),
        answerer(m, t, e, options.renderer) {
    const auto add = [&](std::string_view method, std::string_view path, Handler handler, Api* api = nullptr,
                         bool open = false) {
      routes[std::string(path)].emplace(method, Route{std::move(handler), api, open});
    };
    const auto add_api = [&](std::string_view path, Api& api) {
      add(
          "POST", path, [this, &api](http::Exchange& x) { answer(x, api); }, &api);
    };
    add_api("/v1/chat/completions", *chat);
    add_api("/v1/completions", *completions);
    add_api("/v1/responses", *responses);
    add_api("/v1/messages", *messages);
    add(
        "POST", "/v1/messages/count_tokens", [this](http::Exchange& x) { count_tokens(x); }, messages.get());
    add("GET", "/v1/models", [this](http::Exchange& x) { list_models(x); });
    add("POST", "/tokenize", [this](http::Exchange& x) { tokenize(x); });
    add("POST", "/detokenize", [this](http::Exchange& x) { detokenize(x); });
    add(
        "GET", "/health", [this](http::Exchange& x) { health(x); }, nullptr, true);
    add("GET", "/metrics", [this](http::Exchange& x) {
      send(x, 200, "text/plain; version=0.0.4", metrics.text(engine.statistics()));
    });
    add("GET", "/props", [this](http::Exchange& x) { props(x); });
    add("GET", "/cache", [this](http::Exchange& x) { send(x, 200, kJson, cache.frame().text); });
    add("GET", "/cache/events", [this](http::Exchange& x) { watch_cache(x); });
    for (const Asset& asset : assets()) {
      add(
          "GET", asset.path, [&asset](http::Exchange& x) { send_asset(x, asset); }, nullptr, true);
    }
  }

  using Handler = std::function<void(http::Exchange&)>;
  struct Route {
    Handler handler;
    Api* api;   ///< whose errors it has; nullptr: OpenAI's
    bool open;  ///< to those without a key
  };

  static void send(http::Exchange& x, int status, std::string_view type, std::string_view body,
                   http::Exchange::Headers more = {}) {
    http::Exchange::Headers headers = common_headers();
    headers.insert(headers.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    x.answer(status, type, body, headers);
  }
  static void send_json(http::Exchange& x, const Json& json) { send(x, 200, kJson, to_text(json)); }

  void send_error(http::Exchange& x, const ApiError& error, const Api* api) {
    http::Exchange::Headers headers;
    if (error.retry_after()) headers.emplace_back("Retry-After", std::to_string(*error.retry_after()));
    if (error.status() == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
    send(x, error.status(), kJson, to_text(api != nullptr ? api->error(error) : openai_error(error)),
         headers);
    metrics.count_error(error.status());
  }

  /// An error at any time: where an answer has begun its connection breaks.
  void fail(http::Exchange& x, const ApiError& error, const Api* api) {
    if (x.begun()) throw http::ClientGone(error.what());
    send_error(x, error, api);
  }

  /// Which route; throws Refused for what is none.
  const Route& route(const http::Head& head) const;
  std::string meant_path(std::string path) const;
  const Api* api_of(const http::Head& head) const;
  std::string client(const http::Exchange& x) const;
  Json read_request(http::Exchange& x) const;
  Identity identity() const { return {options.model_name, std::time(nullptr), random_id}; }

  void answer(http::Exchange& x, Api& api);
  void stream(http::Exchange& x, Api& api, const Task& task, const RenderedPrompt& prompt,
              session::Answer& answer);
  void count_tokens(http::Exchange& x);
  void list_models(http::Exchange& x);
  void show_model(http::Exchange& x, std::string_view name);
  void tokenize(http::Exchange& x);
  void detokenize(http::Exchange& x);
  void health(http::Exchange& x);
  void props(http::Exchange& x);
  void watch_cache(http::Exchange& x);
  Json model_json() const;

  const model::Model& model;
  const tokenizer::Tokenizer& tokenizer;
  session::Engine& engine;
  const ServiceOptions options;
  const Access access;
  const Answerer answerer;
  const std::time_t started = std::time(nullptr);
  const std::unique_ptr<Api> chat = openai_chat(), completions = openai_completions(),
                             responses = openai_responses(), messages = anthropic_messages();
  Metrics metrics;
  CacheView cache{engine};
  std::map<std::string, std::map<std::string, Route, std::less<>>, std::less<>> routes;
};

std::string Service::Impl::client(const http::Exchange& x) const {
  return access.check_key(x.head()) + " " + x.peer();
}

/// Clients are often given an address with /v1 at its end that should have none, or the other way round.
std::string Service::Impl::meant_path(std::string path) const {
  while (path.ends_with('/')) path.pop_back();
  if (path.starts_with("/v1/v1/")) path.erase(0, 3);
  for (const std::string& candidate : {path, "/v1" + path})
    if (candidate.size() > 1 && candidate != "/v1" && routes.contains(candidate)) return candidate;
  return {};
}

const Service::Impl::Route& Service::Impl::route(const http::Head& head) const {
  const auto path = routes.find(head.path);
  if (path == routes.end()) {
    const std::string meant = meant_path(head.path);
    throw ApiError(404, fmt::format("there is nothing at {} {}{}", head.method, head.path.substr(0, 100),
                                    meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
  const auto found = path->second.find(head.method == "HEAD" ? "GET" : head.method);
  if (found == path->second.end())
    throw ApiError(405, fmt::format("{} is for {}", head.path, path->second.begin()->first));
  return found->second;
}

const Api* Service::Impl::api_of(const http::Head& head) const {
  // Whoever has an Anthropic header wants Anthropic's errors, wherever it knocks.
  if (head.path.starts_with("/v1/messages") || head.find("anthropic-version") != nullptr)
    return messages.get();
  return nullptr;
}

Json Service::Impl::read_request(http::Exchange& x) const {
  return parse_body(x.read_body());
}

void Service::Impl::answer(http::Exchange& x, Api& api) {
  const std::string who = client(x);
  Task task;
  {
    const Json request = read_request(x);
    task = api.parse(request, options.defaults);
  }
  RenderedPrompt prompt = answerer.render(task);
  const std::shared_ptr<session::Answer> answer = answerer.submit(task, prompt, who);
  metrics.count_request(api.name());
  if (task.stream) return stream(x, api, task, prompt, *answer);

  WholeAnswer whole;
  answerer.deliver(task, prompt, *answer, whole, [&] { check_presence(x); });
  send_json(x, api.whole(task, identity(), whole));
}

void Service::Impl::stream(http::Exchange& x, Api& api, const Task& task, const RenderedPrompt& prompt,
                           session::Answer& answer) {
  x.begin(200, kEvents, common_headers());
  auto last = http::Clock::now();
  const Identity self = identity();
  const std::unique_ptr<AnswerStream> out = api.stream(task, self, [&](std::string_view bytes) {
    x.write(bytes);
    last = http::Clock::now();
  });
  out->started(static_cast<int>(prompt.tokens.size()));
  try {
    answerer.deliver(task, prompt, answer, *out, [&] {
      check_presence(x);
      if (http::Clock::now() - last > kKeepAlive) out->keep_alive();
    });
  } catch (const ApiError& e) {
    out->failed(e);
    metrics.count_error(e.status());
  }
  x.end();
}

void Service::Impl::count_tokens(http::Exchange& x) {
  const Json request = read_request(x);
  const Task task = messages->parse(request, options.defaults);
  send_json(x, {{"input_tokens", answerer.render(task).tokens.size()}});
}

Json Service::Impl::model_json() const {
  std::array<char, 32> time{};
  std::tm parts{};
  ::gmtime_r(&started, &parts);
  std::strftime(time.data(), time.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  // What OpenAI's clients look for, and what Anthropic's do.
  return {{"id", options.model_name},  {"object", "model"},
          {"created", started},        {"owned_by", "redlite"},
          {"type", "model"},           {"display_name", options.model_name},
          {"created_at", time.data()}, {"context_length", engine.capacity()}};
}

void Service::Impl::list_models(http::Exchange& x) {
  send_json(x, {{"object", "list"},
                {"data", Json::array({model_json()})},
                {"has_more", false},
                {"first_id", options.model_name},
                {"last_id", options.model_name}});
}

void Service::Impl::show_model(http::Exchange& x, std::string_view name) {
  if (name != options.model_name) throw ApiError(404, "there is no such model here; see /v1/models");
  send_json(x, model_json());
}

void Service::Impl::tokenize(http::Exchange& x) {
  const Json json = read_request(x);
  const Node request(json);
  const std::string& text = request.at("content").string();
  const bool special = request.boolean_or("parse_special", true);
  std::vector<model::Token> tokens = request.boolean_or("add_special", false)
                                         ? tokenizer.encode_prompt(text, special)
                                         : tokenizer.encode(text, special);
  if (!request.boolean_or("with_pieces", false)) return send_json(x, {{"tokens", tokens}});
  Json list = Json::array();
  for (const model::Token token : tokens)
    list.push_back({{"id", token}, {"piece", tokenizer.piece(token, true)}});
  send_json(x, {{"tokens", std::move(list)}});
}

void Service::Impl::detokenize(http::Exchange& x) {
  const Json json = read_request(x);
  const Node tokens = Node(json).at("tokens");
  if (!tokens.is_array()) tokens.refuse("must be an array");
  tokenizer::StreamDecoder decoder(tokenizer, /*special=*/true);
  std::string text;
  for (const Json& id : tokens.json()) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.size())
      tokens.refuse(fmt::format("has something that is no id from 0 to {}", tokenizer.size() - 1));
    text += decoder.push(id.get<model::Token>());
  }
  text += decoder.finish();
  send_json(x, {{"content", std::move(text)}});
}

void Service::Impl::health(http::Exchange& x) {
  if (x.closing()) throw ApiError::try_again(503, "the server is shutting down", 5);
  send_json(x, {{"status", "ok"}});
}

void Service::Impl::props(http::Exchange& x) {
  const model::Config& config = model.config();
  const session::Statistics now = engine.statistics();
  const engine::SamplerOptions& s = options.defaults.sampler;
  send_json(x, {{"model", options.model_name},
                {"version", options.version},
                {"architecture", config.architecture},
                {"context", engine.capacity()},
                {"model_context", config.context_length},
                {"parallel", now.parallel},
                {"vocabulary", config.n_vocab},
                {"layers", config.n_layers},
                {"experts", config.n_experts},
                {"experts_used", config.n_experts_used},
                {"chat", answerer.can_chat()},
                {"defaults",
                 {{"temperature", short_number(s.temperature)},
                  {"top_k", s.top_k},
                  {"top_p", short_number(s.top_p)},
                  {"min_p", short_number(s.min_p)},
                  {"repetition_penalty", short_number(s.repeat_penalty)},
                  {"presence_penalty", short_number(s.presence_penalty)},
                  {"frequency_penalty", short_number(s.frequency_penalty)}}}});
}

void Service::Impl::watch_cache(http::Exchange& x) {
  if (x.head().method != "GET") throw ApiError(405, "events can only be listened to (GET)");
  x.begin(200, kEvents, common_headers());
  uint64_t seen = 0;
  while (!x.closing() && !x.client_gone()) {
    const CacheView::Frame frame = cache.frame();
    if (frame.number != seen) {
      x.write("data: " + frame.text + "\n\n");
      seen = frame.number;
    }
    std::this_thread::sleep_for(CacheView::kPeriod / 2);
  }
  x.end();
}

Service::Service(const model::Model& model, const tokenizer::Tokenizer& tokenizer, session::Engine& engine,
                 ServiceOptions options)
    : impl_(std::make_unique<Impl>(model, tokenizer, engine, std::move(options))) {}

Service::~Service() = default;

void Service::handle(http::Exchange& exchange) {
  const http::Head& head = exchange.head();
  const Api* api = impl_->api_of(head);
  try {
    impl_->access.check_origin(head);
    constexpr std::string_view kModel = "/v1/models/";
    if (head.path.starts_with(kModel)) {
      impl_->access.check_key(head);
      if (head.method != "GET") throw ApiError(405, "a model can only be looked at (GET)");
      return impl_->show_model(exchange, std::string_view(head.path).substr(kModel.size()));
    }
    const Impl::Route& route = impl_->route(head);
    if (!route.open) impl_->access.check_key(head);
    route.handler(exchange);
  } catch (const ApiError& e) {
    impl_->fail(exchange, e, api);
  } catch (const http::ClientGone&) {
    throw;
  } catch (const http::Refused&) {
    throw;
  } catch (const std::bad_alloc&) {
    impl_->fail(exchange, ApiError::try_again(503, "out of memory", 5), api);
  } catch (const std::exception& e) {  // a fault of ours: it is told, and costs nobody else anything
    fmt::print(stderr, "{} {}: {}\n", head.method, head.path, e.what());
    impl_->fail(exchange, ApiError(500, "internal error"), api);
  }
}

void Service::refuse(http::Exchange& exchange, const http::Refused& refused) {
  // Too much of something, but not of what one client can help.
  const ApiError error = refused.status() == 503 ? ApiError::try_again(503, refused.what(), 1)
                                                 : ApiError(refused.status(), refused.what());
  impl_->send_error(exchange, error, impl_->api_of(exchange.head()));
}

}  // namespace redlite::server
