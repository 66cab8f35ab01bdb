#include <algorithm>

#include "base/quote.h"
#include "chat/jinja/enter.h"
#include "chat/jinja/loop.h"

namespace redlite::chat::jinja {
namespace {

/// Sets a variable for as long as it lives.
template <typename T>
class Swap {
 public:
  Swap(T& variable, T value) : variable_(variable), saved_(std::exchange(variable, std::move(value))) {}
  ~Swap() { variable_ = std::move(saved_); }
  Swap(const Swap&) = delete;
  Swap& operator=(const Swap&) = delete;

 private:
  T& variable_;
  T saved_;
};

std::shared_ptr<Scope> inside(const std::shared_ptr<Scope>& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Enter enter(*this);
  for (const Statement& s : body) {
    budget_.spend();
    if (const Flow flow = execute(s); flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute(const Statement& s) {
  at_ = s.offset;
  switch (s.kind) {
    case Statement::Kind::Data:
      budget_.spend_bytes(s.data.size());
      out_->append(s.data);
      break;
    case Statement::Kind::Output: {
      const Value value = evaluate(*s.expression);
      at_ = s.expression->offset;
      out_->append(str(value));
      break;
    }
    case Statement::Kind::If:
      return execute_if(s);
    case Statement::Kind::For: {
      const Value value = evaluate(*s.expression);
      at_ = s.expression->offset;
      return execute_for(s, items(value), 1);
    }
    case Statement::Kind::Set: {
      const Value value = evaluate(*s.expression);
      at_ = s.offset;
      assign(s.target, value);
      break;
    }
    case Statement::Kind::SetBlock:
      assign(s.target, capture(s, s.expression.get()));
      break;
    case Statement::Kind::Filter: {
      const Value value = capture(s, s.expression.get());
      out_->append(str(value));
      break;
    }
    case Statement::Kind::Macro:
      scope_->variables[s.symbol] = make_macro(*s.macro, s.body);
      break;
    case Statement::Kind::Call:
      execute_call(s);
      break;
    case Statement::Kind::With:
      execute_with(s);
      break;
    case Statement::Kind::Scope:
      return execute_scoped(s.body);
    case Statement::Kind::Break:
      return Flow::Break;
    case Statement::Kind::Continue:
      return Flow::Continue;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute_if(const Statement& s) {
  for (const Statement::Branch& branch : s.branches)
    if (evaluate(*branch.condition).truth()) return execute(branch.body);
  return execute(s.otherwise);
}

Interpreter::Flow Interpreter::execute_scoped(const Body& body) {
  const Swap scope(scope_, inside(scope_));
  return execute(body);
}

Interpreter::Flow Interpreter::execute_for(const Statement& s, std::vector<Value> items, int depth) {
  const Enter enter(*this);
  const std::shared_ptr<Scope> around = scope_;
  Loop::Filter filter;
  if (s.condition) {
    filter = [this, &s, around](const Value& item) {
      const Swap scope(scope_, inside(around));
      assign(s.target, item);
      return evaluate(*s.condition).truth();
    };
  }
  Loop::Recurse recurse;
  if (s.recursive) {
    recurse = [this, &s, around, depth](const Value& below) {
      Text out;
      const Swap output(out_, &out);
      const Swap scope(scope_, around);
      execute_for(s, this->items(below), depth + 1);
      return text(std::move(out));
    };
  }
  const auto loop = std::make_shared<Loop>(std::move(items), std::move(filter), std::move(recurse), depth);
  struct Close {
    Loop& loop;
    ~Close() { loop.close(); }
  } close{*loop};

  bool any = false;
  while (loop->advance()) {
    any = true;
    budget_.spend();
    const Swap scope(scope_, inside(around));
    assign(s.target, loop->current());
    scope_->variables[program_.loop] = loop;
    if (execute(s.body) == Flow::Break) break;
  }
  return any ? Flow::Normal : execute_scoped(s.otherwise);
}

void Interpreter::execute_with(const Statement& s) {
  const std::shared_ptr<Scope> scope = inside(scope_);
  for (const auto& [target, expression] : s.assignments) {
    const Value value = evaluate(*expression);  // outside of the block
    const Swap swap(scope_, scope);
    assign(target, value);
  }
  const Swap swap(scope_, scope);
  execute(s.body);
}

Value Interpreter::capture(const Statement& s, const Expression* filters) {
  Text out;
  {
    const Swap output(out_, &out);
    execute_scoped(s.body);
  }
  Value value = text(std::move(out));
  if (!filters) return value;
  const Swap<const Value*> block(block_, &value);
  return evaluate(*filters);
}

Value Interpreter::make_macro(const Macro& macro, const Body& body) {
  if (closures_.empty() || closures_.back() != scope_) closures_.push_back(scope_);
  const auto call = [&macro, &body, scope = scope_](Interpreter& in, Arguments arguments) {
    return in.call_macro(macro, body, scope, std::move(arguments));
  };
  return std::make_shared<const Callable>(Callable{macro.name, call, 0});
}

Value Interpreter::call_macro(const Macro& macro, const Body& body, const std::shared_ptr<Scope>& scope,
                              Arguments arguments) {
  const Enter enter(*this);
  Text out;
  const Swap output(out_, &out);
  const Swap swap(scope_, inside(scope));
  const Swap<const Value*> block(block_, nullptr);
  bind_parameters(macro, std::move(arguments));
  execute(body);
  return text(std::move(out));
}

void Interpreter::bind_parameters(const Macro& macro, Arguments arguments) {
  const auto& parameters = macro.parameters;
  auto& variables = scope_->variables;
  std::vector<Value> rest;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < parameters.size()) {
      variables[parameters[i].symbol] = std::move(arguments.positional[i]);
    } else {
      rest.push_back(std::move(arguments.positional[i]));
    }
  }
  if (!rest.empty() && !macro.uses_varargs) {
    raise("the macro {} takes at most {} arguments, {} are given", quote(macro.name), parameters.size(),
          arguments.positional.size());
  }
  Dict others;
  for (auto& [name, value] : arguments.named) {
    const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                        [&name = name](const auto& p) { return p.name == name; });
    if (parameter != parameters.end()) {
      if (!variables.emplace(parameter->symbol, value).second) {
        raise("the macro {} is given {} twice", quote(macro.name), quote(name));
      }
    } else if (name == "caller" && macro.uses_caller) {
      variables[program_.caller] = std::move(value);
    } else if (macro.uses_kwargs && name != "caller") {
      others.set(Text(name, /*is_content=*/true), std::move(value));
    } else {
      raise("the macro {} has no parameter {}", quote(macro.name), quote(name));
    }
  }
  if (macro.uses_varargs) variables.emplace(program_.varargs, make_list(std::move(rest), List::Kind::Tuple));
  if (macro.uses_kwargs) variables.emplace(program_.kwargs, make_dict(std::move(others)));
  if (macro.uses_caller)
    variables.emplace(program_.caller, Value::undefined("the macro was not called by a call block"));
  for (const Macro::Parameter& p : parameters) {
    if (variables.count(p.symbol)) continue;
    variables[p.symbol] =
        p.otherwise ? evaluate(*p.otherwise)
                    : Value::undefined(fmt::format("the parameter {} was not given", quote(p.name)));
  }
}

void Interpreter::execute_call(const Statement& s) {
  // The call with one more argument: the block, as a function.
  const Expression& e = *s.expression;
  const Value callee = evaluate(*e.operands[0]);
  Arguments arguments = evaluate_arguments(e.arguments);
  arguments.named.emplace_back("caller", make_macro(*s.macro, s.body));
  at_ = e.offset;
  const Value value = call(callee, std::move(arguments));
  out_->append(str(value));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.several.empty()) {
    const std::vector<Value> values = items(value);
    if (values.size() != target.several.size()) {
      at_ = target.offset;
      raise("{} values cannot be assigned to {} names", values.size(), target.several.size());
    }
    for (size_t i = 0; i < values.size(); ++i) assign(target.several[i], values[i]);
  } else if (target.attribute.empty()) {
    scope_->variables[target.symbol] = value;
  } else {
    const Value* found = find_variable(target.symbol);
    if (!found || !found->name_space()) {
      at_ = target.offset;
      raise("attributes of a namespace() only can be assigned to");
    }
    found->name_space()->attributes.insert_or_assign(target.attribute, value);
  }
}

}  // namespace redlite::chat::jinja
