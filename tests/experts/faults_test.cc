#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifdef __linux__
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include <cstddef>
#include <filesystem>
#include <numeric>
#include <random>
#include <tuple>

#include "base/aligned.h"
#include "experts/cache.h"
#include "experts/store.h"
#include "test_files.h"
#include "test_readers.h"

namespace redlite::experts {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CacheOptions bounded(uint64_t bytes, IoMode io) {
  return {{CacheSize::Kind::Bounded, bytes}, true, io};
}

class Faulty : public ::testing::TestWithParam<std::tuple<const char*, IoMode>> {
 protected:
  void SetUp() override {
    if (!backend()) GTEST_SKIP() << "no io_uring here";
    if (io() == IoMode::Direct && !Shards::can_read_directly(files_)) GTEST_SKIP() << "no direct reads here";
  }
  IoMode io() const { return std::get<1>(GetParam()); }
  std::unique_ptr<Reader> backend() const {
    return std::get<0>(GetParam()) == std::string("io_uring") ? make_uring_reader() : make_thread_reader();
  }
  std::unique_ptr<Reader> reader(Faults faults, uint32_t seed) const {
    return std::make_unique<FaultyReader>(backend(), faults, seed);
  }

  /// Walks through the layers with random selections and predictions; every byte handed out is compared.
  /// Returns how many reads failed.
  int walk(ExpertCache& cache, int steps, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> all(TestFiles::kExperts);
    std::iota(all.begin(), all.end(), 0);
    int failures = 0;
    for (int step = 0; step < steps; ++step) {
      const int layer = step % TestFiles::kLayers;
      std::shuffle(all.begin(), all.end(), random);
      const std::span<const int32_t> ids = std::span<const int32_t>(all).first(TestFiles::kUsed);
      ExpertCache::Lease lease = cache.acquire(layer, ids);
      cache.prefetch((layer + 1) % TestFiles::kLayers,
                     std::span<const int32_t>(all).subspan(random() % 6, TestFiles::kUsed));
      int outcomes = 0;
      for (;;) {
        try {
          const std::optional<int> index = lease.next();
          if (!index) break;
          ++outcomes;
          const auto expected = files_.mapped(layer, ids[static_cast<size_t>(*index)]);
          EXPECT_TRUE(same_expert(lease.expert(*index), expected)) << "step " << step;
        } catch (const Error& e) {
          ++outcomes;
          ++failures;
          EXPECT_THAT(e.what(), AllOf(HasSubstr("cannot read expert "), HasSubstr(" at offset "),
                                      HasSubstr("Input/output error"), HasSubstr("experts_")));
        }
      }
      EXPECT_EQ(outcomes, TestFiles::kUsed);
    }
    return failures;
  }

  const Watchdog watchdog_;
  const TestFiles test_{::testing::TempDir(), 77};
  const ExpertFiles files_ = test_.files();
  const uint64_t minimum_ = size_classes(files_).minimum_bytes(TestFiles::kUsed);
};

TEST_P(Faulty, ShortInterruptedAndDelayedReadsAreCompleted) {
  Faults faults;
  faults.short_read = 300;
  faults.interrupted = 100;
  faults.again = 100;
  faults.full_queue = 100;
  faults.held_back = 500;
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    ExpertCache cache(files_, bounded(minimum_ * (1 + seed), io()), reader(faults, seed));
    EXPECT_EQ(walk(cache, 120, seed), 0);
  }
}

TEST_P(Faulty, AFailedReadIsAnErrorOfItsExpertOnlyAndCanBeRetried) {
  Faults faults;
  faults.short_read = 100;
  faults.io_error = 30;
  faults.held_back = 300;
  ExpertCache cache(files_, bounded(minimum_ * 2, io()), reader(faults, 5));
  const int failures = walk(cache, 150, 5);
  EXPECT_GT(failures, 5);
  EXPECT_LT(failures, 150);
}

TEST_P(Faulty, NoExpertIsResidentAfterItsReadFailed) {
  Faults faults;
  faults.io_error = 1000;
  ExpertCache cache(files_, bounded(minimum_ * 2, io()), reader(faults, 5));
  for (int i = 0; i < 3; ++i) {
    ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{4});
    EXPECT_THAT(error_of([&] { lease.next(); }), HasSubstr("cannot read expert 4 of layer 0 at offset"));
    EXPECT_EQ(lease.next(), std::nullopt);
  }
  EXPECT_EQ(cache.stats().misses, 3u);
  EXPECT_EQ(cache.stats().hits, 0u);
}

TEST_P(Faulty, EndlessInterruptionsAreAnErrorNotAHang) {
  Faults faults;
  faults.again = 1000;
  ExpertCache cache(files_, bounded(minimum_, io()), reader(faults, 5));
  ExpertCache::Lease lease = cache.acquire(0, std::vector<int32_t>{4});
  EXPECT_THAT(error_of([&] { lease.next(); }), HasSubstr("100 times in a row"));
}

TEST_P(Faulty, ATruncatedFileIsNamed) {
  ExpertCache cache(files_, bounded(minimum_ * 2, io()), backend());
  std::filesystem::resize_file(test_.path(0), 4096);
  ExpertCache::Lease lease = cache.acquire(3, std::vector<int32_t>{7});
  EXPECT_THAT(
      error_of([&] { lease.next(); }),
      AllOf(HasSubstr(test_.path(0)), HasSubstr("expert 7 of layer 3"), HasSubstr("changed while in use")));
}

TEST_P(Faulty, AFileOverwrittenInPlaceIsNoticed) {
  ExpertCache cache(files_, bounded(minimum_ * 2, io()), backend());
  {
    ExpertCache::Lease lease = cache.acquire(3, std::vector<int32_t>{6});
    EXPECT_EQ(lease.next(), 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the clock of modification times is coarse
  test_.write(0, std::filesystem::file_size(test_.path(0)), 99);
  ExpertCache::Lease lease = cache.acquire(3, std::vector<int32_t>{7});
  EXPECT_THAT(error_of([&] { lease.next(); }), HasSubstr("changed while in use"));
}

TEST_P(Faulty, AFileReplacedByRenameIsStillTheOldOne) {
  ExpertCache cache(files_, bounded(minimum_ * 2, io()), backend());
  const std::string other = test_.path(0) + ".new";
  std::filesystem::copy_file(test_.path(1), other);
  std::filesystem::rename(other, test_.path(0));
  ExpertCache::Lease lease = cache.acquire(3, std::vector<int32_t>{7});
  ASSERT_EQ(lease.next(), 0);
  EXPECT_TRUE(same_expert(lease.expert(0), files_.mapped(3, 7)));
}

TEST_P(Faulty, MoreReadsThanTheQueueHolds) {
  ExpertStore store(files_, io(), std::make_unique<ShallowReader>(backend(), 16));
  std::vector<std::unique_ptr<AlignedBuffer<std::byte>>> slots;
  std::vector<ExpertKey> keys;
  size_t chunks = 0;
  for (int layer = 0; layer < TestFiles::kLayers; ++layer) {
    for (int32_t e = 0; e < TestFiles::kExperts; ++e) {
      const Placement placement = place(files_.layers[static_cast<size_t>(layer)], e);
      slots.push_back(std::make_unique<AlignedBuffer<std::byte>>(placement.slot_bytes, kIoAlignment));
      keys.push_back({layer, e});
      store.read(keys.back(), placement, slots.back()->data(), static_cast<int32_t>(keys.size()) - 1);
      chunks += placement.used().size();
    }
  }
  ASSERT_GT(chunks, 16u);
  std::vector<Arrival> arrivals;
  while (store.pending() > 0) store.poll(true, arrivals);
  ASSERT_EQ(arrivals.size(), keys.size());
  for (const Arrival& a : arrivals) {
    EXPECT_EQ(a.error, "");
    const ExpertKey key = keys[static_cast<size_t>(a.slot)];
    const Placement placement = place(files_.layers[static_cast<size_t>(key.layer)], key.expert);
    auto expert = files_.mapped(key.layer, key.expert);
    const auto expected = expert;
    expert.gate.data = slots[static_cast<size_t>(a.slot)]->data() + placement.gate;
    expert.up.data = slots[static_cast<size_t>(a.slot)]->data() + placement.up;
    expert.down.data = slots[static_cast<size_t>(a.slot)]->data() + placement.down;
    EXPECT_TRUE(same_expert(expert, expected)) << key.layer << " " << key.expert;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Faulty,
                         ::testing::Combine(::testing::Values("io_uring", "threads"),
                                            ::testing::Values(IoMode::Direct, IoMode::Buffered)),
                         [](const auto& backend) {
                           return std::string(std::get<0>(backend.param)) + "_" +
                                  std::string(io_mode_name(std::get<1>(backend.param)));
                         });

#ifdef __linux__
/// Makes io_uring_setup fail in this process, as container runtimes do.
bool forbid_io_uring() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(WithoutIoUringDeathTest, ThreadsReadInstead) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        if (!forbid_io_uring()) std::exit(0);
        const TestFiles test(::testing::TempDir(), 78);
        const ExpertFiles files = test.files();
        ExpertCache cache(files, bounded(size_classes(files).full_bytes(), IoMode::Buffered), nullptr);
        ExpertCache::Lease lease = cache.acquire(1, std::vector<int32_t>{3});
        const bool right = lease.next() == 0 && same_expert(lease.expert(0), files.mapped(1, 3));
        std::exit(right && cache.io() == "buffered reads by threads" ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace redlite::experts
