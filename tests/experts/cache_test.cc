#include "experts/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include "experts/reader.h"
#include "experts/shards.h"
#include "test_files.h"
#include "test_readers.h"

namespace redlite::experts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int kUsed = TestFiles::kUsed;

CacheOptions bounded(uint64_t bytes, IoMode io = IoMode::Buffered, bool prefetch = true) {
  return {{CacheSize::Kind::Bounded, bytes}, prefetch, io};
}

uint64_t minimum_of(const ExpertFiles& files) {
  return size_classes(files).minimum_bytes(files.n_experts_used);
}

/// Everything a lease has to hand out, in order.
std::vector<int> drain(ExpertCache::Lease& lease) {
  std::vector<int> indices;
  while (const std::optional<int> index = lease.next()) indices.push_back(*index);
  return indices;
}

/// What is told of single experts adds up to the counters of all.
void expect_uses_add_up(const ExpertCache& cache) {
  ExpertUse sum;
  const std::vector<ExpertUse> uses = cache.uses();
  ASSERT_EQ(uses.size(), static_cast<size_t>(TestFiles::kLayers * TestFiles::kExperts));
  for (size_t i = 0; i < uses.size(); ++i) {
    sum.hits += uses[i].hits;
    sum.misses += uses[i].misses;
    sum.prefetches += uses[i].prefetches;
    const int at = static_cast<int>(i);
    EXPECT_EQ(uses[i].resident, cache.resident(at / TestFiles::kExperts, at % TestFiles::kExperts));
    EXPECT_TRUE(!cache.find(at / TestFiles::kExperts, at % TestFiles::kExperts) || uses[i].resident);
    EXPECT_TRUE(!uses[i].resident || uses[i].misses + uses[i].prefetches > 0);
  }
  const CacheStats stats = cache.stats();
  EXPECT_EQ(sum.hits, stats.hits);
  EXPECT_EQ(sum.misses, stats.misses + stats.prefetch_late);
  EXPECT_EQ(sum.prefetches, stats.prefetched);
}

std::vector<int32_t> random_ids(std::mt19937& random, int n) {
  std::vector<int32_t> ids(TestFiles::kExperts);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(static_cast<size_t>(n));
  return ids;
}

void expect_consistent(const CacheStats& stats, uint64_t selections) {
  EXPECT_EQ(stats.hits + stats.misses + stats.prefetch_late, selections);
  EXPECT_EQ(stats.prefetch_useful + stats.prefetch_late + stats.prefetch_wasted, stats.prefetched);
}

class CacheBytes : public ::testing::TestWithParam<std::tuple<const char*, IoMode>> {
 protected:
  std::unique_ptr<Reader> reader() const {
    return std::get<0>(GetParam()) == std::string("io_uring") ? make_uring_reader() : make_thread_reader();
  }
};

TEST_P(CacheBytes, AreThoseOfTheFileWhateverTheSequence) {
  const Watchdog watchdog;
  const TestFiles test(::testing::TempDir());
  const ExpertFiles files = test.files();
  const IoMode io = std::get<1>(GetParam());
  if (!reader()) GTEST_SKIP() << "no io_uring here";
  if (io == IoMode::Direct && !Shards::can_read_directly(files)) GTEST_SKIP() << "no direct reads here";
  const uint64_t minimum = minimum_of(files);
  for (const uint64_t bytes : {minimum, minimum * 3 / 2, minimum * 2, minimum * 16}) {
    for (const bool prefetch : {false, true}) {
      ExpertCache cache(files, bounded(bytes, io, prefetch), reader());
      EXPECT_LE(cache.memory_bytes(), bytes);
      std::mt19937 random(static_cast<uint32_t>(bytes + prefetch));
      uint64_t selections = 0;
      for (int step = 0; step < 100; ++step) {
        const int layer = step % TestFiles::kLayers;
        const auto n = static_cast<int>(1 + random() % static_cast<uint32_t>(cache.max_lease(layer)));
        const std::vector<int32_t> ids = random_ids(random, n);
        const auto reads = step % 3 == 0 ? ExpertCache::Reads::Later : ExpertCache::Reads::Now;
        std::optional<ExpertCache::Lease> lease = cache.acquire(layer, ids, reads);
        selections += ids.size();
        const int next_layer = (layer + 1) % TestFiles::kLayers;
        const std::vector<int32_t> predicted = random_ids(random, kUsed);
        cache.prefetch(next_layer, predicted);
        std::optional<ExpertCache::Lease> second;
        std::vector<int32_t> second_ids;
        if (cache.two_leases_fit(layer) && step % 5 == 0) {
          second_ids = random_ids(random, cache.max_lease(layer));  // may share experts with the first
          second = cache.acquire(layer, second_ids);
          selections += second_ids.size();
        }
        if (step % 7 == 3) continue;  // given up with reads in flight
        std::vector<int> seen;
        while (const std::optional<int> index = lease->next()) {
          seen.push_back(*index);
          const auto expected = files.mapped(layer, ids[static_cast<size_t>(*index)]);
          ASSERT_TRUE(same_expert(lease->expert(*index), expected)) << "step " << step;
        }
        std::sort(seen.begin(), seen.end());
        std::vector<int> every(ids.size());
        std::iota(every.begin(), every.end(), 0);
        ASSERT_EQ(seen, every);
        lease.reset();
        if (second) {
          for (const int index : drain(*second)) {
            const auto expected = files.mapped(layer, second_ids[static_cast<size_t>(index)]);
            ASSERT_TRUE(same_expert(second->expert(index), expected)) << "step " << step;
          }
        }
      }
      const CacheStats stats = cache.stats();
      expect_consistent(stats, selections);
      expect_uses_add_up(cache);
      EXPECT_GT(stats.misses, 0u);
      if (!prefetch || bytes == minimum) {
        EXPECT_EQ(stats.prefetched, 0u);
      } else if (bytes <= minimum * 3) {
        EXPECT_GT(stats.prefetched, 0u);
      } else {
        EXPECT_LE(stats.misses + stats.prefetched,
                  static_cast<uint64_t>(TestFiles::kLayers * TestFiles::kExperts));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CacheBytes,
                         ::testing::Combine(::testing::Values("io_uring", "threads"),
                                            ::testing::Values(IoMode::Direct, IoMode::Buffered)),
                         [](const auto& backend) {
                           return std::string(std::get<0>(backend.param)) + "_" +
                                  std::string(io_mode_name(std::get<1>(backend.param)));
                         });

class CacheBehaviour : public ::testing::Test {
 protected:
  /// A cache of all experts whose reads arrive only when waited for, or when the gate is open.
  ExpertCache gated_cache(uint64_t bytes, bool prefetch = true) {
    return {files_, bounded(bytes, IoMode::Buffered, prefetch),
            std::make_unique<GatedReader>(make_thread_reader(), gate_)};
  }

  const Watchdog watchdog_;
  const TestFiles test_{::testing::TempDir()};
  const ExpertFiles files_ = test_.files();
  const uint64_t everything_ = size_classes(files_).full_bytes();
  const std::shared_ptr<GatedReader::Gate> gate_ = std::make_shared<GatedReader::Gate>();
};

TEST_F(CacheBehaviour, HitsComeFirstThenArrivals) {
  ExpertCache cache(files_, bounded(everything_), nullptr);
  {
    const std::vector<int32_t> ids = {4, 2};
    ExpertCache::Lease lease = cache.acquire(0, ids);
    drain(lease);
  }
  const std::vector<int32_t> ids = {1, 2, 3, 4};
  ExpertCache::Lease lease = cache.acquire(0, ids);
  const std::vector<int> order = drain(lease);
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order[0], 1);
  EXPECT_EQ(order[1], 3);
  EXPECT_EQ(cache.stats().hits, 2u);
  EXPECT_EQ(cache.stats().misses, 4u);
  EXPECT_EQ(lease.next(), std::nullopt);
}

TEST_F(CacheBehaviour, TryNextDoesNotWait) {
  ExpertCache cache = gated_cache(everything_);
  const std::vector<int32_t> ids = {5};
  ExpertCache::Lease lease = cache.acquire(0, ids);
  EXPECT_EQ(lease.try_next(), std::nullopt);
  EXPECT_EQ(cache.stats().stall_seconds, 0);
  EXPECT_EQ(lease.next(), 0);
  EXPECT_GT(cache.stats().stall_seconds, 0);
}

TEST_F(CacheBehaviour, ReadsBeginLaterWhereAskedTo) {
  ExpertCache cache = gated_cache(everything_);
  {
    ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{5});
    drain(lease);
  }
  const int before = gate_->submitted;
  const std::vector<int32_t> ids = {4, 5, 6};
  ExpertCache::Lease lease = cache.acquire(0, ids, ExpertCache::Reads::Later);
  EXPECT_EQ(lease.next_present(), 1);
  EXPECT_EQ(lease.next_present(), std::nullopt);
  EXPECT_EQ(gate_->submitted, before);
  cache.begin_reads();
  EXPECT_GT(gate_->submitted, before);
  EXPECT_EQ(drain(lease).size(), 2u);
  EXPECT_EQ(cache.stats().misses, 3u);
}

TEST_F(CacheBehaviour, CountsPrefetchesAsUsefulLateAndWasted) {
  ExpertCache cache = gated_cache(everything_);
  cache.prefetch(1, std::vector<int32_t>{7, 5, 6});
  EXPECT_EQ(cache.stats().prefetched, 3u);
  gate_->open = true;
  {
    // Another layer's acquire lets the three arrive.
    ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{0});
    drain(lease);
  }
  gate_->open = false;
  {
    ExpertCache::Lease lease = cache.acquire(1, std::vector<int32_t>{5, 7, 3});
    EXPECT_EQ(drain(lease).size(), 3u);
  }
  cache.prefetch(3, std::vector<int32_t>{1});
  {
    ExpertCache::Lease lease = cache.acquire(3, std::vector<int32_t>{1});
    EXPECT_EQ(drain(lease).size(), 1u);
  }
  const CacheStats stats = cache.stats();
  EXPECT_EQ(stats.prefetched, 4u);
  EXPECT_EQ(stats.prefetch_useful, 2u);
  EXPECT_EQ(stats.prefetch_late, 1u);
  EXPECT_EQ(stats.prefetch_wasted, 1u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  expect_consistent(stats, 5);
}

TEST_F(CacheBehaviour, AnAcquireJoinsThePrefetchInFlight) {
  ExpertCache cache = gated_cache(everything_);
  cache.prefetch(1, std::vector<int32_t>{7});
  const int submitted = gate_->submitted;
  EXPECT_GT(submitted, 0);
  ExpertCache::Lease lease = cache.acquire(1, std::vector<int32_t>{7});
  EXPECT_EQ(drain(lease), std::vector<int>{0});
  EXPECT_TRUE(same_expert(lease.expert(0), files_.mapped(1, 7)));
  EXPECT_EQ(gate_->submitted, submitted);
  EXPECT_EQ(cache.stats().prefetch_late, 1u);
  EXPECT_EQ(cache.stats().misses, 0u);
}

TEST_F(CacheBehaviour, PrefetchWaitsForTheCriticalPathAndIsForgottenInTime) {
  ExpertCache cache = gated_cache(everything_);
  std::optional<ExpertCache::Lease> lease = cache.acquire(0, std::vector<int32_t>{0});
  const int urgent = gate_->submitted;
  cache.prefetch(1, std::vector<int32_t>{7});
  EXPECT_EQ(cache.stats().prefetched, 0u);
  EXPECT_EQ(gate_->submitted, urgent);
  drain(*lease);  // the read is done; the prefetch starts
  EXPECT_EQ(cache.stats().prefetched, 1u);
  EXPECT_GT(gate_->submitted, urgent);
  lease.reset();

  lease = cache.acquire(0, std::vector<int32_t>{1});
  cache.prefetch(2, std::vector<int32_t>{3, 4});
  ExpertCache::Lease next = cache.acquire(2, std::vector<int32_t>{3});  // before it could start
  drain(next);
  drain(*lease);
  EXPECT_EQ(cache.stats().prefetched, 1u);
}

TEST_F(CacheBehaviour, ReadsWhenIdleFewAtATimeInTheirOrder) {
  ExpertCache cache = gated_cache(everything_);
  std::vector<ExpertKey> keys;
  for (int32_t e = 7; e >= 0; --e) keys.push_back({1, e});
  ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{0});
  cache.read_when_idle(keys);
  EXPECT_EQ(cache.stats().prefetched, 1u) << "another one beside the lease's";
  EXPECT_TRUE(cache.resident(1, 7));
  drain(lease);
  EXPECT_GE(cache.stats().prefetched, 2u);
  EXPECT_TRUE(cache.resident(1, 6));
  EXPECT_EQ(std::ranges::count_if(
                keys, [&](ExpertKey k) { return cache.resident(1, k.expert) && !cache.find(1, k.expert); }),
            2)
      << "on their way";

  cache.read_when_idle({});
  const uint64_t begun = cache.stats().prefetched;
  gate_->open = true;
  cache.begin_reads();
  EXPECT_EQ(cache.stats().prefetched, begun) << "the others are forgotten";
  const std::vector<int32_t> ids = {7};
  ExpertCache::Lease joined = cache.acquire(1, ids);
  EXPECT_EQ(cache.stats().prefetch_useful, 1u);

  ExpertCache without = gated_cache(everything_, false);
  without.read_when_idle(keys);
  EXPECT_EQ(without.stats().prefetched, 0u);
}

TEST_F(CacheBehaviour, APredictedResidentExpertIsKept) {
  const std::vector<SlotClass> classes = divide(size_classes(files_), kUsed, minimum_of(files_));
  ASSERT_EQ(classes[0].n_slots, kUsed);
  ExpertCache cache(files_, bounded(minimum_of(files_)), nullptr);
  {
    ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{1, 2, 3});
    drain(lease);
  }
  cache.prefetch(0, std::vector<int32_t>{1});
  {
    ExpertCache::Lease lease = cache.acquire(2, std::vector<int32_t>{1, 2});  // evicts layer 0's 2 and 3
    drain(lease);
  }
  ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{1});
  EXPECT_EQ(cache.stats().hits, 1u);
}

TEST_F(CacheBehaviour, ALeaseGivenUpWithReadsInFlightHarmsNobody) {
  ExpertCache cache = gated_cache(minimum_of(files_));
  { const ExpertCache::Lease given_up = cache.acquire(0, std::vector<int32_t>{0, 1, 2}); }
  // Its slots are all that the class has: the next lease waits until they are written.
  ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{3, 4, 5});
  for (const int index : drain(lease)) {
    EXPECT_TRUE(same_expert(lease.expert(index), files_.mapped(0, 3 + index)));
  }
}

TEST_F(CacheBehaviour, DestructionWaitsForReadsInFlight) {
  for (int i = 0; i < 20; ++i) {
    ExpertCache cache(files_, bounded(everything_), i % 2 == 0 ? make_thread_reader() : make_reader());
    const ExpertCache::Lease lease = cache.acquire(i % 4, std::vector<int32_t>{0, 1, 2, 3});
  }
}

TEST_F(CacheBehaviour, BytesReadAreThoseOfTheExperts) {
  ExpertCache cache(files_, bounded(everything_), nullptr);
  {
    ExpertCache::Lease lease = cache.acquire(1, std::vector<int32_t>{0, 1});
    drain(lease);
  }
  EXPECT_EQ(cache.stats().bytes_read, 2 * files_.layers[1].triplet_bytes());
}

TEST_F(CacheBehaviour, TooSmallIsRefusedWithWhatWorks) {
  const uint64_t minimum = minimum_of(files_);
  EXPECT_THAT(
      error_of([&] { ExpertCache(files_, bounded(minimum - 1), nullptr); }),
      HasSubstr("the least that works is --cache-mib " + std::to_string((minimum + (1 << 20) - 1) >> 20)));
  const ExpertCache cache(files_, bounded(minimum), nullptr);
  EXPECT_EQ(cache.max_lease(0), kUsed);
  EXPECT_FALSE(cache.two_leases_fit(0));
}

TEST_F(CacheBehaviour, TwoLeasesFitWhereItSays) {
  ExpertCache cache = gated_cache(minimum_of(files_) * 3);
  ASSERT_TRUE(cache.two_leases_fit(1));
  const int most = cache.max_lease(1);
  ASSERT_GE(most, kUsed);
  std::vector<int32_t> ids(TestFiles::kExperts);
  std::iota(ids.begin(), ids.end(), 0);
  const std::span<const int32_t> all(ids);
  ExpertCache::Lease first = cache.acquire(1, all.first(static_cast<size_t>(most)));
  ExpertCache::Lease second =
      cache.acquire(1, all.subspan(static_cast<size_t>(most), static_cast<size_t>(most)));
  for (const int i : drain(first)) EXPECT_TRUE(same_expert(first.expert(i), files_.mapped(1, i)));
  for (const int i : drain(second)) EXPECT_TRUE(same_expert(second.expert(i), files_.mapped(1, most + i)));
}

TEST_F(CacheBehaviour, AFullCacheHandsOutTheMapping) {
  ExpertCache cache(files_, {}, nullptr);
  EXPECT_EQ(cache.max_lease(0), TestFiles::kExperts);
  EXPECT_FALSE(cache.prefetching());
  EXPECT_EQ(cache.io(), "mapped");
  cache.prefetch(1, std::vector<int32_t>{1});
  ExpertCache::Lease lease = cache.acquire(2, std::vector<int32_t>{6, 3});
  EXPECT_THAT(drain(lease), ElementsAre(0, 1));
  EXPECT_EQ(lease.expert(1).up.data, files_.mapped(2, 3).up.data);
  EXPECT_EQ(cache.stats().hits, 2u);
  EXPECT_EQ(cache.stats().bytes_read, 0u);
  EXPECT_EQ(cache.memory_bytes(), 0u);
}

TEST_F(CacheBehaviour, AutoMeasuresAndSaysWhatItChose) {
  const IoChoice choice = choose_io_mode(files_);
  EXPECT_GT(choice.buffered, 0);
  EXPECT_EQ(choice.direct > 0, Shards::can_read_directly(files_));
  EXPECT_EQ(choice.mode, better_io_mode(choice.direct, choice.buffered));
  ExpertCache cache(files_, bounded(everything_, IoMode::Auto), make_thread_reader());
  EXPECT_THAT(cache.io(),
              MatchesRegex("(direct|buffered) reads by threads \\((measured: direct .* GB/s, buffered .*|"
                           "the file system has no direct ones)\\)"));
  ExpertCache::Lease lease = cache.acquire(1, std::vector<int32_t>{3});
  EXPECT_EQ(lease.next(), 0);
  EXPECT_TRUE(same_expert(lease.expert(0), files_.mapped(1, 3)));
}

// A token waits for few experts at a time: how fast many are together says nothing about how long that takes.
TEST_F(CacheBehaviour, AutoReadsAsFewTogetherAsATokenMisses) {
  int most = 0;
  choose_io_mode(files_, [&] { return std::make_unique<CountingReader>(make_thread_reader(), most); });
  constexpr int kChunks = 6;  // of an expert: three matrices of 262.5 KiB
  EXPECT_GT(most, 0);
  EXPECT_LE(most, std::max(kUsed / 4, 1) * kChunks);
}

TEST(IoMode, BufferedReadsMustBeMuchFaster) {
  EXPECT_EQ(better_io_mode(2e9, 1e9), IoMode::Direct);
  EXPECT_EQ(better_io_mode(2e9, 5e9), IoMode::Direct);
  EXPECT_EQ(better_io_mode(0.5e9, 5e9), IoMode::Buffered);
  EXPECT_EQ(better_io_mode(0, 1e6), IoMode::Buffered);
}

TEST_F(CacheBehaviour, ReadAheadFillsTheSlotsToSpareAndIsJoined) {
  // Class 0 (layers 0 and 2) has 12 slots for 16 experts: plans of 3, and 6 slots keep what they have.
  const SizeClasses sizes = size_classes(files_);
  const uint64_t bytes =
      minimum_of(files_) + 9 * sizes.classes[0].slot_bytes + 9 * sizes.classes[1].slot_bytes;
  const int slots = divide(sizes, kUsed, bytes)[0].n_slots;
  ASSERT_EQ(slots, 12);
  ExpertCache cache = gated_cache(bytes);
  ASSERT_EQ(cache.max_lease(0), 3);
  EXPECT_EQ(cache.worth_keeping(0, 6), 6);
  EXPECT_EQ(cache.worth_keeping(0, 7), 3);
  ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{0, 1, 2});
  const int urgent = gate_->submitted;
  cache.read_ahead(2, std::vector<int32_t>{7, 6, 5, 4, 3, 2, 1, 0});
  EXPECT_EQ(cache.stats().prefetched, 3u);  // of 9 that are not pinned, 6 are kept
  EXPECT_GT(gate_->submitted, urgent);      // at once
  EXPECT_TRUE(cache.resident(2, 7));
  EXPECT_TRUE(cache.resident(2, 5));
  EXPECT_FALSE(cache.resident(2, 4));
  EXPECT_EQ(drain(lease).size(), 3u);
  ExpertCache::Lease next = cache.acquire(2, std::vector<int32_t>{6, 5, 0});
  for (const int i : drain(next)) {
    const int32_t id = std::vector<int32_t>{6, 5, 0}[static_cast<size_t>(i)];
    EXPECT_TRUE(same_expert(next.expert(i), files_.mapped(2, id)));
  }
  const CacheStats stats = cache.stats();
  EXPECT_EQ(stats.prefetch_late + stats.prefetch_useful, 2u);
  EXPECT_EQ(stats.misses, 4u);
  expect_consistent(stats, 6);
}

TEST_F(CacheBehaviour, RetiredExpertsMakeRoomFirst) {
  const SizeClasses sizes = size_classes(files_);
  ExpertCache cache(
      files_, bounded(minimum_of(files_) + 3 * sizes.classes[0].slot_bytes + 3 * sizes.classes[1].slot_bytes),
      nullptr);
  const auto use = [&](int layer, std::vector<int32_t> ids, bool retire) {
    ExpertCache::Lease lease = cache.acquire(layer, ids);
    if (retire) lease.retire(1);
    drain(lease);
  };
  use(0, {0, 1, 2}, false);
  use(2, {0, 1, 2}, true);  // the six slots are full
  use(0, {3}, false);
  EXPECT_FALSE(cache.resident(2, 1));
  EXPECT_TRUE(cache.resident(0, 0));
  use(0, {4}, false);
  EXPECT_FALSE(cache.resident(0, 0));  // the least recently used again
}

}  // namespace
}  // namespace redlite::experts
