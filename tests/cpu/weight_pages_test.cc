#include "cpu/weight_pages.h"

#include <gtest/gtest.h>

#include <vector>

#include "../support/temporary_folder.h"
#include "base/huge_pages.h"
#include "model/model.h"
#include "synth/synth.h"

namespace redlite::cpu {
namespace {

using redlite::testing::TemporaryFolder;

/// A model whose dense weights fill some huge pages, and its bytes.
class WeightPagesTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::string written(const std::string& path) {
    synth::write_model(path, {.preset = "tiny", .types = "all=F32", .vocabulary_from = REDLITE_DEMO_MODEL});
    return path;
  }
  std::vector<std::byte> bytes() const {
    const std::span<const std::byte> all = model_.file().shard_bytes(0);
    return {all.begin(), all.end()};
  }

  TemporaryFolder folder_;
  model::Model model_{written(folder_ / "model.gguf")};
};

/// With and without the experts.
TEST_P(WeightPagesTest, BytesStayAndPagesGrow) {
  const std::vector<std::byte> before = bytes();
  WeightPages pages(model_, GetParam(), /*room=*/true);
  pages.wait();
  EXPECT_EQ(bytes(), before);
  const WeightPages::Report report = pages.report();
  EXPECT_EQ(report.seen, report.total);
  if (!huge_pages_available()) GTEST_SKIP() << "no huge pages on this system";
  ASSERT_GT(report.total, 0u);
  if (GetParam()) {
    EXPECT_GT(report.total, model_.dense_bytes());
    EXPECT_LE(report.total, before.size());
  } else {
    // One way or another all are in huge pages now, and with room the ends of dense weights, too.
    EXPECT_LE(report.total, before.size());
    EXPECT_GT(report.total, WeightPages(model_, false, /*room=*/false).report().total);
    EXPECT_EQ(report.huge + report.copied, report.total);
  }
}

TEST_P(WeightPagesTest, WithoutRoomNothingIsCopiedNorExpertsRead) {
  WeightPages pages(model_, GetParam(), /*room=*/false);
  pages.wait();
  EXPECT_EQ(pages.report().copied, 0u);
  EXPECT_LE(pages.report().total, model_.dense_bytes());
}

TEST_P(WeightPagesTest, MayEndAtAnyTime) {
  const std::vector<std::byte> before = bytes();
  for (int i = 0; i < 5; ++i) WeightPages(model_, GetParam(), /*room=*/true);
  EXPECT_EQ(bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(Experts, WeightPagesTest, ::testing::Bool());

}  // namespace
}  // namespace redlite::cpu
