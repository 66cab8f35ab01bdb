#pragma once

#include <span>
#include <vector>

/// The formulas of the model in double precision, one function each.
namespace redlite::reference {

using Vec = std::vector<double>;

double sigmoid(double x);
double silu(double x);      ///< x * sigmoid(x)
double softplus(double x);  ///< log(1 + exp(x)), without overflow

/// x[i] / sqrt(mean(x^2) + eps) * weight[i]
Vec rms_norm(std::span<const double> x, std::span<const float> weight, double eps);

/// x[i] / sqrt(sum(x^2) + eps), in place.
void l2_normalize(std::span<double> x, double eps);

/// exp(x[i]) / sum(exp(x)), in place.
void softmax(std::span<double> x);

double dot(std::span<const double> a, std::span<const double> b);

/// NEOX-style rotary position embedding, in place: the pair (x[i], x[i + rope_dims / 2]) is turned by
/// position * base^(-2 i / rope_dims) for i < rope_dims / 2; values from rope_dims on stay.
void rope(std::span<double> head, int rope_dims, double base, int position);

/// One token of the gated delta rule for one head (Yang et al., "Gated Delta Networks", eq. 10). The state
/// S[d_k][d_v] maps keys to values: it fades, what it answers for k is moved towards v by the share `beta`,
/// and q is asked.
///   S *= decay;  d = (v - S'k) * beta;  S += k d';  returns S'q
Vec delta_step(std::span<double> state, std::span<const double> q, std::span<const double> k,
               std::span<const double> v, double decay, double beta);

}  // namespace redlite::reference
