#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

namespace redlite::chat::jinja {

/// Reads expressions with Jinja's grammar and precedence, and keeps the names that the template uses.
class ExpressionParser {
 protected:
  static constexpr int kMaxDepth = 200;   ///< of what is written inside of each other
  static constexpr int kMaxHeight = 250;  ///< of an expression's tree

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// Counts a level of recursion.
  class Depth {
   public:
    explicit Depth(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) fail_at(parser_.peek(), "the template nests too deeply");
    }
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    ExpressionParser& parser_;
  };

  [[noreturn]] static void fail_at(const Token& token, const std::string& reason) {
    throw SyntaxFailure(token.offset, reason);
  }

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  /// Moves on; stays on the last token, End.
  const Token& next();
  bool is_operator(std::string_view text) const;
  bool take_operator(std::string_view text);
  bool take_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect(Token::Kind kind, std::string_view what);

  static ExpressionPtr make(Expression::Kind kind, uint32_t offset);
  Symbol symbol(std::string_view name);
  char& is_read(Symbol symbol) { return names_.is_read[static_cast<size_t>(symbol)]; }

  /// One expression; `with_condition` says whether it may be "a if b else c".
  ExpressionPtr read_expression(bool with_condition);
  /// The same, or several with commas between them, which are a tuple.
  ExpressionPtr read_tuple(bool with_condition);
  /// "|filter|filter(...)" behind an expression; with `first_named` the first one has no "|".
  ExpressionPtr read_filters(ExpressionPtr value, bool first_named = false);

  Program names_;

 private:
  ExpressionPtr read_or();
  ExpressionPtr read_and();
  ExpressionPtr read_not();
  ExpressionPtr read_compare();
  ExpressionPtr read_sum();
  ExpressionPtr read_concat();
  ExpressionPtr read_product();
  ExpressionPtr read_power();
  ExpressionPtr read_unary(bool with_filters);
  ExpressionPtr read_primary();
  ExpressionPtr read_dict(const Token& open);
  ExpressionPtr read_postfix(ExpressionPtr value);
  ExpressionPtr read_subscript(ExpressionPtr value);
  ExpressionPtr read_call(ExpressionPtr value);
  ExpressionPtr read_attribute(ExpressionPtr value);
  ExpressionPtr read_test(ExpressionPtr value);
  ExpressionPtr read_filters_and_tests(ExpressionPtr value);
  std::vector<Argument> read_arguments();
  bool ends_expression() const;

  /// a op b op c, all of one precedence, as one node.
  using Operators = std::initializer_list<std::pair<std::string_view, Operator>>;
  ExpressionPtr read_chain(ExpressionPtr (ExpressionParser::*operand)(), Operators operators);
  /// Checks and notes the height of a finished node.
  static ExpressionPtr finish(ExpressionPtr node);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string, Symbol, std::less<>> symbols_;
};

}  // namespace redlite::chat::jinja
