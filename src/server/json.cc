#include "server/json.h"

#include <cmath>

namespace redlite::server {
namespace {

/// Counts what a parser reads and stops it where it is too much.
class Limiter {
 public:
  bool operator()(nlohmann::json::parse_event_t event, const Json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        if (keys_.size() == kMaxDepth) throw ApiError(400, "the request is nested more than 64 deep");
        keys_.push_back(0);
        count(/*large=*/true);
        break;
      case Event::object_end:
      case Event::array_end:
        keys_.pop_back();
        break;
      case Event::key:
        if (++keys_.back() > kMaxKeysOfObject)
          throw ApiError(400, "an object of the request has more than 1000 keys");
        break;
      case Event::value:
        count(!parsed.is_number());
        break;
    }
    return true;
  }

 private:
  void count(bool large) {
    if (++values_ > kMaxValues) throw ApiError(400, "the request has more than 400000 values");
    if (large && ++large_ > kMaxLarge)
      throw ApiError(400, "the request has more than 100000 values that are no numbers");
  }

  int values_ = 0, large_ = 0;
  std::vector<int> keys_;  ///< of the objects that are open
};

/// The parser's message without its number and the input it quotes.
std::string explain(const nlohmann::json::parse_error& e) {
  return fmt::format("the request's body is not valid JSON, at byte {}", e.byte);
}

}  // namespace

Json parse_body(std::string_view text) {
  Json body;
  try {
    Limiter limiter;
    body = Json::parse(text, [&](int /*depth*/, nlohmann::json::parse_event_t event, const Json& parsed) {
      return limiter(event, parsed);
    });
  } catch (const nlohmann::json::parse_error& e) {
    throw ApiError(400, explain(e));
  } catch (const nlohmann::json::exception&) {  // such as a number beyond what a double can hold
    throw ApiError(400, "the request's body is not valid JSON: a number is out of range");
  }
  if (!body.is_object()) throw ApiError(400, "the request's body must be a JSON object");
  return body;
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json short_number(float value) {
  return Json::parse(fmt::format("{}", value), nullptr, /*allow_exceptions=*/false);
}

void Node::refuse(std::string_view what) const {
  throw ApiError(400, fmt::format("{}: {}", path_.empty() ? "request" : path_, what), path_);
}

const std::string& Node::string() const {
  if (!json_->is_string()) refuse("must be a string");
  return json_->get_ref<const std::string&>();
}

bool Node::boolean() const {
  if (!json_->is_boolean()) refuse("must be true or false");
  return json_->get<bool>();
}

int64_t Node::integer(int64_t low, int64_t high) const {
  const double value = json_->is_number() ? json_->get<double>() : NAN;
  // Whole numbers written with a point are accepted: some clients have no others.
  if (!(value >= static_cast<double>(low) && value <= static_cast<double>(high)) ||
      value != std::trunc(value))
    refuse(fmt::format("must be a whole number from {} to {}", low, high));
  return json_->is_number_float() ? static_cast<int64_t>(value) : json_->get<int64_t>();
}

double Node::number(double low, double high) const {
  const double value = json_->is_number() ? json_->get<double>() : NAN;
  if (!(value >= low && value <= high)) refuse(fmt::format("must be a number from {} to {}", low, high));
  return value;
}

const Json& Node::object() const {
  if (!json_->is_object()) refuse("must be an object");
  return *json_;
}

std::vector<Node> Node::array() const {
  if (!json_->is_array()) refuse("must be an array");
  std::vector<Node> items;
  items.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i) items.emplace_back((*json_)[i], fmt::format("{}[{}]", path_, i));
  return items;
}

std::optional<Node> Node::find(std::string_view key) const {
  const Json& members = object();
  const auto it = members.find(std::string(key));
  if (it == members.end() || it->is_null()) return std::nullopt;
  return Node(*it, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

Node Node::at(std::string_view key) const {
  if (std::optional<Node> node = find(key)) return *node;
  const std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  throw ApiError(400, fmt::format("{}: is missing", path), path);
}

std::string Node::string_or(std::string_view key, std::string_view otherwise) const {
  const std::optional<Node> node = find(key);
  return node ? node->string() : std::string(otherwise);
}

bool Node::boolean_or(std::string_view key, bool otherwise) const {
  const std::optional<Node> node = find(key);
  return node ? node->boolean() : otherwise;
}

}  // namespace redlite::server
