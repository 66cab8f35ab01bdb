#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/budget.h"
#include "chat/jinja/value.h"

namespace redlite::chat::jinja {

/// The variables of a block that has its own: a macro's call, an iteration of a loop.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<Symbol, Value> variables;
};

/// Runs a program once. Throws Failure; offset() then says where.
class Interpreter {
 public:
  struct Variable {
    std::string name;
    Value value;
  };

  Interpreter(const Program& program, std::vector<Variable> variables, Budget& budget, std::time_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Text run();
  /// Of what was computed last.
  uint32_t offset() const { return at_; }

  // What filters, tests, methods and functions use.

  Budget& budget() { return budget_; }
  std::time_t now() const { return now_; }
  /// str(value).
  Text str(const Value& value) { return to_text(value, budget_); }
  /// A new text, paid for.
  Value text(Text text);
  /// What iterating over a value gives; uses a generator up.
  std::vector<Value> items(const Value& value);
  Value attribute(const Value& value, std::string_view name);
  Value item(const Value& value, const Value& key);
  bool contains(const Value& container, const Value& value);
  Value call(const Value& callee, Arguments arguments);
  Value filter(std::string_view name, const Value& value, Arguments arguments);
  bool test(std::string_view name, const Value& value, Arguments arguments);
  Value make_namespace();

 private:
  enum class Flow { Normal, Break, Continue };
  class Enter;

  // statements.cc
  Flow execute(const Body& body);
  Flow execute(const Statement& s);
  Flow execute_if(const Statement& s);
  Flow execute_for(const Statement& s, std::vector<Value> items, int depth);
  Flow execute_scoped(const Body& body);
  void execute_call(const Statement& s);
  void execute_with(const Statement& s);
  /// The output of a body in a scope of its own, filtered.
  Value capture(const Statement& s, const Expression* filters);
  Value make_macro(const Macro& macro, const Body& body);
  Value call_macro(const Macro& macro, const Body& body, const std::shared_ptr<Scope>& scope,
                   Arguments arguments);
  void bind_parameters(const Macro& macro, Arguments arguments);
  void assign(const Target& target, const Value& value);

  // expressions.cc
  Value evaluate(const Expression& e);
  Value evaluate_name(const Expression& e);
  Value evaluate_dict(const Expression& e);
  Value evaluate_slice(const Expression& e);
  Value evaluate_call(const Expression& e);
  Value evaluate_filter(const Expression& e);
  Value evaluate_test(const Expression& e);
  Value evaluate_arithmetic(const Expression& e);
  Value evaluate_compare(const Expression& e);
  Value evaluate_concat(const Expression& e);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Arguments evaluate_arguments(const std::vector<Argument>& arguments);
  const Value* find_variable(Symbol symbol);

  const Program& program_;
  Budget& budget_;
  std::time_t now_;
  uint32_t at_ = 0;
  int depth_ = 0;
  Text* out_ = nullptr;
  const Value* block_ = nullptr;  ///< what Expression::Kind::Block stands for
  std::shared_ptr<Scope> scope_;
  /// Functions of a template hold scopes that hold them, and namespaces can hold themselves: emptied at the
  /// end.
  std::vector<std::shared_ptr<Scope>> closures_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace redlite::chat::jinja
