#pragma once

#include <random>
#include <vector>

#include "gpu/kernels/device_matrix.h"
#include "gpu/selftest/selftest.h"
#include "quant/type.h"

/// Matrices and vectors of the self-test, and what a product of them is in double precision.
namespace redlite::gpu {

/// A random matrix with its values, and what bounds their rounding.
struct TestMatrix {
  std::vector<std::byte> blocks;
  std::vector<float> values;       ///< [rows][cols]
  std::vector<double> magnitudes;  ///< |scale * q| + |min|
};
TestMatrix random_matrix(quant::Type type, int rows, int cols, std::mt19937& random);

/// Its planes on the device, with the group's buffers.
DeviceMatrix upload(Selftest& test, quant::Type type, int rows, int cols, const TestMatrix& matrix);

/// x as a product sees it, and how far off each value may be because of roundings before that.
struct Seen {
  std::vector<double> values, slack;
};

/// Rounded to 8 bits as activations.h defines; `exact`: x has the very bits that are rounded.
Seen rounded(const std::vector<double>& x, bool exact);
/// Not rounded, each value off by at most 2^-20 of itself unless `exact`.
Seen plain(const std::vector<double>& x, bool exact);
/// rounded() or plain(), as a matrix of this type takes it.
Seen seen_by(quant::Type type, const std::vector<double>& x, bool exact);

/// The bytes of QuantizedActivations for x.
std::vector<std::byte> rounded_vector(const std::vector<float>& x);
/// What such bytes stand for.
std::vector<double> values_of(std::span<const std::byte> rounded, int n);

/// Compares what a kernel left in 8 bits, [n_rows][rounded_bytes(n)], with its own floats [n_rows][n].
void check_rounded(Selftest& test, const std::string& label, const float* values, const std::byte* rounded,
                   int n_rows, int n);

Expected product(const TestMatrix& w, int rows, int cols, const Seen& x);

struct MatrixShape {
  int rows, cols;
};
/// Shapes with tails of every kind that a type allows.
std::vector<MatrixShape> matrix_shapes(quant::Type type);

}  // namespace redlite::gpu
