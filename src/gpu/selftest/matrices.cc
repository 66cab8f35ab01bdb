#include <fmt/format.h>

#include "gpu/matrix.h"
#include "gpu/selftest/matrix_values.h"
#include "gpu/selftest/selftest.h"

namespace redlite::gpu {
namespace {

using quant::Type;

void test_repack(Selftest& test, Type type) {
  for (const MatrixShape shape : matrix_shapes(type)) {
    const TestMatrix w = random_matrix(type, shape.rows, shape.cols, test.random());
    std::vector<std::byte> expected(plane_bytes(type, shape.rows, shape.cols));
    repack(type, shape.rows, shape.cols, w.blocks.data(), expected.data());
    for (const size_t shift : {size_t{0}, size_t{2}}) {  // source aligned or not
      std::vector<std::byte> shifted(shift);
      shifted.insert(shifted.end(), w.blocks.begin(), w.blocks.end());
      const std::byte* from = test.upload(shifted) + shift;
      auto* to = test.output<std::byte>(expected.size());
      repack(test.stream(), test.device().info(), type, shape.rows, shape.cols, from, to);
      test.check_bytes(fmt::format("{} x {}, {} bytes off", shape.rows, shape.cols, shift), to, expected);
    }
  }
}

}  // namespace

void add_matrix_groups(SelftestGroups& groups) {
  for (const quant::TypeInfo& info : quant::all_types()) {
    groups.emplace_back(fmt::format("repack {}", info.name),
                        [type = info.type](Selftest& test) { test_repack(test, type); });
  }
}

}  // namespace redlite::gpu
