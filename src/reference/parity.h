#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/runner.h"

namespace redlite::reference {

/// How far apart two runners' values are, over all tokens compared. The relative error of a token is
/// |b - a| / |a| as vectors. A missing or non-finite value counts as infinity.
struct ErrorMeasure {
  double absolute = 0;  ///< largest of any value
  double worst = 0;     ///< largest relative error of a token
  int position = 0;     ///< of that token
  double overall = 0;   ///< |b - a| / |a| of all tokens together
  double worst_bound = 0;
  double overall_bound = 0;

  bool within_bounds() const { return worst <= worst_bound && overall <= overall_bound; }
};

/// One stage of one layer (docs/parity.md).
struct StageError {
  model::Stage stage = model::Stage::Embedding;
  int layer = -1;  ///< -1 outside the layers

  /// The reference computes this stage from b's own inputs, so that the error is this stage's alone.
  ErrorMeasure local;
  /// a and b run on their own, errors pile up. Tokens behind an expert that only one of them selected are
  /// left out.
  ErrorMeasure drift;
};

/// a and b selected different experts at one rank of one token.
struct SelectionDifference {
  int layer = -1;
  int position = -1;
  int rank = -1;  ///< 0: the best
  int32_t expert_a = -1;
  int32_t expert_b = -1;
  // Of the pairs of experts that a and b order differently and that one of these two belongs to:
  double margin = 0;        ///< largest distance of a pair's logits in a
  double perturbation = 0;  ///< larger difference between a and b in that pair's logits
  bool near_tie =
      false;  ///< for each of the pairs margin <= 2 * perturbation, and the margin is within its cap
};

struct ParityReport {
  int n_tokens = 0;
  std::vector<StageError> stages;                 ///< in order of computation
  std::vector<SelectionDifference> differences;   ///< of tokens whose past was equal
  int consequences = 0;                           ///< selections that differ behind such a difference
  double mean_kl = 0, median_kl = 0, max_kl = 0;  ///< KL(a || b) of the next token, in nats
  int top1_equal = 0;                             ///< tokens after which both favour the same next token
  std::vector<std::string> failures;              ///< what is out of bounds, a line each; empty: all is well
};

/// What b does knowingly, beside computing products with quantised weights from 8-bit activations.
struct ParityOptions {
  bool half_precision_kv = false;  ///< keeps keys and values in F16
};

/// Runs both from the empty sequence over the tokens and compares every stage; also checks that every
/// selection of b is, bit for bit, what model/router.h defines for b's own input. Replaces the taps of both.
/// Throws Error on an empty input and when a runner fails.
ParityReport compare(const model::Model& model, model::Runner& a, model::Runner& b,
                     std::span<const model::Token> tokens, const ParityOptions& options = {});

}  // namespace redlite::reference
