#include "experts/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "test_files.h"

namespace redlite::experts {
namespace {

using ::testing::HasSubstr;

TEST(Placement, SegmentsFitDirectReadsAtAnyOffset) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 20'000; ++trial) {
    model::ExpertLayer layer;
    for (model::ExpertTensor* t : {&layer.gate, &layer.up, &layer.down}) {
      t->shard = random() % 2;
      t->offset = random() % 100'000;
      t->expert_bytes = 1 + random() % 20'000;
      t->expert_stride = t->expert_bytes;
    }
    if (trial % 4 == 0) {  // gate and up adjacent, in either order
      layer.up.shard = layer.gate.shard;
      layer.down.offset += 1'000'000;
      layer.up.expert_stride = layer.gate.expert_stride = layer.gate.expert_bytes + layer.up.expert_bytes;
      if (trial % 8 == 0) {
        layer.up.offset = layer.gate.offset + layer.gate.expert_bytes;
      } else {
        layer.gate.offset = layer.up.offset + layer.up.expert_bytes;
      }
    }
    const auto expert = static_cast<int>(random() % 4);
    const Placement p = place(layer, expert);
    ASSERT_LE(p.n_segments, trial % 4 == 0 ? 2 : 3);
    size_t end = 0;
    uint64_t bytes = 0;
    for (const Segment& s : p.used()) {
      ASSERT_EQ(s.slot_offset % kIoAlignment, s.offset % kIoAlignment);
      ASSERT_GE(align_down(s.slot_offset), end);  // the aligned ranges do not overlap
      end = align_up(s.slot_offset + s.bytes);
      bytes += s.bytes;
    }
    ASSERT_EQ(bytes, layer.triplet_bytes());
    ASSERT_EQ(p.slot_bytes, end);
    // Every matrix's bytes lie in the segment that brings them.
    const std::pair<const model::ExpertTensor*, size_t> starts[] = {
        {&layer.gate, p.gate}, {&layer.up, p.up}, {&layer.down, p.down}};
    for (const auto& [t, start] : starts) {
      const uint64_t offset = t->offset_of(expert);
      bool found = false;
      for (const Segment& s : p.used()) {
        found = found || (s.shard == t->shard && s.offset <= offset &&
                          offset + t->expert_bytes <= s.offset + s.bytes &&
                          start - s.slot_offset == offset - s.offset);
      }
      ASSERT_TRUE(found) << "trial " << trial;
    }
  }
}

TEST(SizeClasses, OneForEachTripletSize) {
  const TestFiles test(::testing::TempDir());
  const SizeClasses sizes = size_classes(test.files());
  EXPECT_EQ(sizes.class_of_layer, (std::vector<int>{0, 1, 0, 1}));
  ASSERT_EQ(sizes.classes.size(), 2u);
  for (size_t c = 0; c < 2; ++c) {
    EXPECT_EQ(sizes.classes[c].n_slots, 2 * TestFiles::kExperts);
    EXPECT_GE(sizes.classes[c].slot_bytes, sizes.triplet_bytes[c]);
    EXPECT_LE(sizes.classes[c].slot_bytes, sizes.triplet_bytes[c] + 6 * kIoAlignment);
    EXPECT_EQ(sizes.classes[c].slot_bytes % kIoAlignment, 0u);
  }
}

TEST(Divide, KeepsTheBudgetAndTheMinimumAndGrowsWithTheBudget) {
  SizeClasses sizes;
  sizes.classes = {{172 * 4096, 37 * 512}, {226 * 4096, 11 * 512}, {40 * 4096, 16}};
  sizes.triplet_bytes = {172 * 4096 - 100, 226 * 4096 - 100, 40 * 4096 - 100};
  constexpr int kUsed = 10;
  const uint64_t minimum = sizes.minimum_bytes(kUsed);
  const uint64_t full = sizes.full_bytes();
  const auto bytes_of = [](const std::vector<SlotClass>& classes) {
    uint64_t bytes = 0;
    for (const SlotClass& c : classes) bytes += c.slot_bytes * static_cast<uint64_t>(c.n_slots);
    return bytes;
  };
  std::vector<SlotClass> before = divide(sizes, kUsed, minimum);
  for (const SlotClass& c : before) EXPECT_EQ(c.n_slots, kUsed);
  for (uint64_t bytes = minimum; bytes < full; bytes += 100'000'007) {
    const std::vector<SlotClass> classes = divide(sizes, kUsed, bytes);
    EXPECT_LE(bytes_of(classes), bytes);
    EXPECT_GT(bytes_of(classes) + 3 * 226 * 4096, bytes);
    for (size_t c = 0; c < classes.size(); ++c) EXPECT_GE(classes[c].n_slots, before[c].n_slots);
    before = classes;
  }
  EXPECT_EQ(bytes_of(divide(sizes, kUsed, full)), full);
  EXPECT_EQ(bytes_of(divide(sizes, kUsed, full * 2)), full);
  EXPECT_LT(bytes_of(divide(sizes, kUsed, full - 1)), full);

  // A quarter of everything is about a quarter of each large class.
  const std::vector<SlotClass> quarter = divide(sizes, kUsed, full / 4);
  EXPECT_NEAR(quarter[0].n_slots, 37 * 512 / 4, 20);
  EXPECT_NEAR(quarter[1].n_slots, 11 * 512 / 4, 20);

  EXPECT_THAT(
      error_of([&] { divide(sizes, kUsed, minimum - 1); }),
      HasSubstr("10 of 688 KiB, 10 of 904 KiB, 10 of 160 KiB); the least that works is --cache-mib 18"));
}

}  // namespace
}  // namespace redlite::experts
