#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/value.h"

namespace redlite::chat::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// A name of the template, as an index of Program::names.
using Symbol = int;
constexpr Symbol kNoSymbol = -1;

enum class Operator {
  Add,
  Subtract,
  Multiply,
  Divide,
  FloorDivide,
  Modulo,
  Power,
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  In,
  NotIn,
};

struct Argument {
  enum class Kind { Positional, Named, Unpacked, UnpackedNamed };
  Kind kind;
  std::string name;
  ExpressionPtr value;
};

/// One node of an expression; which members mean something depends on its kind.
struct Expression {
  enum class Kind {
    Constant,     // constant
    Name,         // symbol, name
    List,         // operands
    Tuple,        // operands
    Dict,         // operands: key, value, key, value, ...
    Attribute,    // operands: object; name
    Item,         // operands: object, key
    Slice,        // operands: object, begin, end, step; each of the last three may be null
    Call,         // operands: callee; arguments
    Filter,       // operands: value; name, arguments
    Test,         // operands: value; name, arguments
    Block,        // the text of the block that a {% filter %} or {% set %} filters
    Not,          // operands: one
    And,          // operands: two
    Or,           // operands: two
    Negate,       // operands: one
    Positive,     // operands: one
    Arithmetic,   // operands: n + 1, operators: n; from the left
    Compare,      // operands: n + 1, operators: n; a chain
    Concat,       // operands: as text
    Conditional,  // operands: condition, value, value otherwise (may be null)
  };

  Kind kind;
  uint32_t offset;  ///< in the source
  int height = 0;   ///< levels of nodes below
  Value constant;
  Symbol symbol = kNoSymbol;
  std::string name;
  std::vector<ExpressionPtr> operands;
  std::vector<Operator> operators;
  std::vector<Argument> arguments;
};

/// What an assignment assigns to: a name, an attribute of a namespace, or several of these.
struct Target {
  uint32_t offset = 0;
  Symbol symbol = kNoSymbol;
  std::string attribute;  ///< of the namespace `symbol`, unless empty
  std::vector<Target> several;
};

struct Statement;
using Body = std::vector<Statement>;

struct Macro {
  struct Parameter {
    Symbol symbol;
    std::string name;
    ExpressionPtr otherwise;  ///< null: undefined if not given
  };
  std::string name;
  std::vector<Parameter> parameters;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Statement {
  enum class Kind {
    Data,      // data
    Output,    // expression
    If,        // branches, otherwise
    For,       // target, expression, condition, body, otherwise, recursive
    Set,       // target, expression
    SetBlock,  // target, body; expression: filters, or null
    Macro,     // symbol, macro, body
    Call,      // expression: the call; macro: the parameters of its block; body
    Filter,    // expression: filters; body
    With,      // assignments, body
    Scope,     // body
    Break,
    Continue,
  };
  struct Branch {
    ExpressionPtr condition;
    Body body;
  };

  Kind kind;
  uint32_t offset;
  Text data;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Target target;
  Symbol symbol = kNoSymbol;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body, otherwise;
  std::unique_ptr<Macro> macro;
  bool recursive = false;
};

/// A parsed template.
struct Program {
  Body body;
  std::vector<std::string> names;
  std::vector<char> is_read;  ///< of each name: it is used somewhere, not only assigned to
  Symbol loop, caller, varargs, kwargs;
};

}  // namespace redlite::chat::jinja
