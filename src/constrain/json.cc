#include "constrain/json.h"

#include <algorithm>
#include <map>
#include <string>

#include "chat/tool_schemas.h"
#include "constrain/string_automaton.h"

namespace redlite::constrain {

namespace {

constexpr uint32_t kMaxIndent = 32;

}  // namespace

NodeId JsonPieces::blanks(NodeId next) {
  const NodeId end = b_->finish_rule();
  const NodeId indent =
      b_->loop(b_->either(b_->literal(" ", end), b_->literal("\t", end)), 0, kMaxIndent, next);
  const NodeId choices[] = {next, b_->literal(" ", next), b_->literal("\n", indent)};
  return b_->any_of(choices);
}

NodeId JsonPieces::colon(NodeId next) {
  return b_->literal(":", b_->optional(b_->literal(" ", next), next));
}

NodeId JsonPieces::quoted(std::string_view text, NodeId next) {
  std::string json = "\"";
  chat::append_json_escaped(json, text);
  json += '"';
  return b_->literal(json, next);
}

NodeId JsonPieces::string(uint32_t min, uint32_t max, NodeId next) {
  return b_->literal("\"", b_->string_rest(min, max, next));
}

/// Follows the texts byte by byte and is free once it differs from all. On the way nothing is escaped, or a
/// text could be written another way.
NodeId JsonPieces::string_other_than(std::span<const std::string_view> texts, NodeId next) {
  struct Step {
    std::map<uint8_t, size_t> children;
    bool is_text = false;
    uint8_t state = StringAutomaton::kStart;
  };
  std::vector<Step> steps(1);
  for (const std::string_view text : texts) {
    std::string json;
    chat::append_json_escaped(json, text);
    size_t at = 0;
    for (const char c : json) {
      const auto byte = static_cast<uint8_t>(c);
      const auto found = steps[at].children.find(byte);
      if (found != steps[at].children.end()) {
        at = found->second;
        continue;
      }
      const uint8_t state = StringAutomaton::step(steps[at].state, byte);
      if (state == StringAutomaton::kDead) break;  // no UTF-8: nothing can be equal to it
      steps[at].children.emplace(byte, steps.size());
      at = steps.size();
      steps.push_back({.children = {}, .is_text = false, .state = state});
    }
    steps[at].is_text = true;
  }
  std::vector<NodeId> nodes(steps.size());
  for (size_t i = steps.size(); i-- > 0;) {  // children stand behind their parents
    const Step& step = steps[i];
    std::vector<NodeId> choices;
    for (const auto& [byte, child] : step.children)
      choices.push_back(b_->byte_range(byte, byte, nodes[child]));
    const bool between = step.state == StringAutomaton::kStart;
    if (between && !step.is_text) choices.push_back(b_->literal("\"", next));
    // Behind a backslash only what the texts have goes on, since \u may write anything.
    const uint8_t backslash = StringAutomaton::step(StringAutomaton::kStart, '\\');
    const bool in_escape = step.state >= backslash;
    for (int low = 0; !in_escape && low < 256;) {
      const auto leads = [&](int byte) {
        if (byte == '\\' || step.children.contains(static_cast<uint8_t>(byte))) return StringAutomaton::kDead;
        const uint8_t to = StringAutomaton::step(step.state, static_cast<uint8_t>(byte));
        return to == StringAutomaton::kEnd ? StringAutomaton::kDead : to;
      };
      const uint8_t to = leads(low);
      int high = low;
      while (high + 1 < 256 && leads(high + 1) == to) ++high;
      if (to != StringAutomaton::kDead) {
        choices.push_back(b_->byte_range(static_cast<uint8_t>(low), static_cast<uint8_t>(high),
                                         b_->string_rest(0, kNoLimit, next, to)));
      }
      low = high + 1;
    }
    nodes[i] = b_->any_of(choices);
  }
  return b_->literal("\"", nodes[0]);
}

NodeId JsonPieces::list_of(char open, char close, NodeId element, uint32_t min, uint32_t max, NodeId next) {
  if (max < min) return b_->never();
  const NodeId end = b_->finish_rule();
  const NodeId closed = b_->byte_range(static_cast<uint8_t>(close), static_cast<uint8_t>(close), next);
  NodeId inside = min == 0 ? closed : b_->never();
  if (max > 0) {
    const NodeId more = b_->literal(",", blanks(b_->call(element, end)));
    const NodeId rest =
        b_->loop(more, min > 0 ? min - 1 : 0, max == kNoLimit ? kNoLimit : max - 1, blanks(closed));
    inside = b_->either(inside, blanks(b_->call(element, rest)));
  }
  return b_->byte_range(static_cast<uint8_t>(open), static_cast<uint8_t>(open), inside);
}

NodeId JsonPieces::array_of(NodeId item, uint32_t min, uint32_t max, NodeId next) {
  return list_of('[', ']', item, min, max, next);
}

NodeId JsonPieces::object_of(NodeId member, uint32_t min, uint32_t max, NodeId next) {
  return list_of('{', '}', member, min, max, next);
}

void JsonPieces::make_rules() {
  if (any_rule_ != 0) return;
  const NodeId end = b_->finish_rule();
  any_rule_ = b_->reserve();
  member_rule_ = string(0, kNoLimit, colon(b_->call(any_rule_, end)));
  const NodeId choices[] = {object_of(member_rule_, 0, kNoLimit, end),
                            array_of(any_rule_, 0, kNoLimit, end),
                            string(0, kNoLimit, end),
                            number_between(*b_, {}, end),
                            b_->literal("true", end),
                            b_->literal("false", end),
                            b_->literal("null", end)};
  b_->set(any_rule_, b_->any_of(choices));
}

NodeId JsonPieces::any_value(NodeId next) {
  make_rules();
  return b_->call(any_rule_, next);
}

NodeId JsonPieces::any_object(NodeId next) {
  make_rules();
  return object_of(member_rule_, 0, kNoLimit, next);
}

}  // namespace redlite::constrain
