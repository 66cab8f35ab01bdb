#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/json.h"
#include "constrain/schema_algebra.h"

namespace redlite::constrain {

/// Where a value stands.
struct Position {
  NodeId next;  ///< what follows it
  /// For values of Qwen3-Coder's XML: strings are written without quotes and escapes, up to `plain_end` and
  /// then `plain_next`, while all other values are JSON. Empty: everything is JSON.
  std::string_view plain_end = {};
  NodeId plain_next = 0;

  bool plain() const { return !plain_end.empty(); }
};

/// Writes the grammar of what a JSON schema allows (see constrain.h).
class SchemaWriter {
 public:
  /// `root`, which must outlive it, is what references lead into; `where` starts the messages of errors.
  SchemaWriter(GrammarBuilder& builder, const Schema& root, std::string where);

  /// Throws Error naming the place in the schema.
  NodeId write(const Schema& schema, const std::string& pointer, const Position& position);

  /// Throws Error for a keyword that is not supported.
  void check_keywords(const Schema& schema, const std::string& pointer) const;

  /// Writes what references led to. After that the grammar is complete.
  void finish();

  /// The place of the rule that `node` is; "" if it is none.
  std::string place_of(NodeId node) const;

  const SchemaAlgebra& algebra() const { return algebra_; }

 private:
  NodeId write_reference(const std::string& reference, const std::string& pointer, const Position& position);
  NodeId write_branches(const Schema& schema, const char* keyword, const std::string& pointer,
                        const Position& position);
  NodeId write_values(const Schema& schema, const Schema& values, const std::string& pointer,
                      const Position& position);
  bool satisfies(const Schema& value, const Schema& schema, const std::string& pointer) const;
  NodeId write_number(const Schema& schema, bool integer, const std::string& pointer, NodeId next);
  NodeId write_string(const Schema& schema, const std::string& pointer, const Position& position);
  NodeId write_array(const Schema& schema, const std::string& pointer, NodeId next);
  NodeId write_object(const Schema& schema, const std::string& pointer, NodeId next);
  NodeId write_map(const Schema& schema, const std::string& pointer, NodeId next);
  NodeId rule_of(const Schema& schema, const std::string& pointer);
  NodeId value_in(const Schema& schema, const std::string& pointer, NodeId next) {
    return write(schema, pointer, {.next = next});
  }
  uint32_t count(const Schema& schema, const char* keyword, uint32_t otherwise,
                 const std::string& pointer) const;

  GrammarBuilder& b_;
  SchemaAlgebra algebra_;
  JsonPieces json_;
  struct Pending {
    NodeId rule;
    std::string reference;
    std::string pointer;
  };
  std::map<std::string, NodeId> rules_;  ///< by reference
  std::deque<Pending> pending_;
  int depth_ = 0;
};

}  // namespace redlite::constrain
