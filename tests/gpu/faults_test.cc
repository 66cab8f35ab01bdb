// What goes wrong on the way: one clear message, no hang, and the device's memory is given back.

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <thread>

#include "base/error.h"
#include "experts/test_files.h"
#include "experts/test_readers.h"
#include "gpu/gpu_runner.h"
#include "model/temporary_model.h"

namespace redlite::gpu {
namespace {

using experts::CacheSize;
using model::LogitsFor;
using model::Token;
using redlite::testing::some_tokens;
using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A device in front of another one that outlives it, so that what is left behind can be seen; its calls fail
/// when `fails` says so.
class DecoratedDevice final : public Device {
 public:
  DecoratedDevice(Device& inner, std::function<bool(Call)> fails) : inner_(inner) {
    info_ = inner.info();
    set_fault_hook(std::move(fails));
  }
  size_t free_memory() const override { return inner_.free_memory(); }
  std::unique_ptr<Stream> create_stream() override;
  std::unique_ptr<Event> create_event() override { return inner_.create_event(); }

 protected:
  void* do_allocate(size_t bytes) override {
    Buffer buffer = inner_.allocate(bytes, "decorated");
    void* address = buffer.as<void>();
    buffers_[address] = std::move(buffer);
    return address;
  }
  void do_free(void* address, size_t /*bytes*/) noexcept override { buffers_.erase(address); }
  void* do_allocate_host(size_t bytes, void** on_device) override {
    HostBuffer buffer = inner_.allocate_host(bytes, "decorated");
    void* address = buffer.host<void>();
    *on_device = buffer.on_device<void>();
    host_buffers_[address] = std::move(buffer);
    return address;
  }
  void do_free_host(void* address, size_t /*bytes*/) noexcept override { host_buffers_.erase(address); }
  void* do_register(void* address, size_t bytes, bool read_only) override {
    HostBuffer buffer = inner_.register_host(address, bytes, read_only, "decorated");
    void* on_device = buffer.on_device<void>();
    host_buffers_[address] = std::move(buffer);
    return on_device;
  }
  void do_unregister(void* address, size_t /*bytes*/) noexcept override { host_buffers_.erase(address); }

 private:
  Device& inner_;
  std::map<void*, Buffer> buffers_;
  std::map<void*, HostBuffer> host_buffers_;
};

class DecoratedStream final : public Stream {
 public:
  DecoratedStream(const Device& device, std::unique_ptr<Stream> inner)
      : device_(device), inner_(std::move(inner)) {}
  void copy(void* to, const void* from, size_t bytes) override {
    device_.check_fault(Call::copy, "copy");
    inner_->copy(to, from, bytes);
  }
  void fill(void* to, uint8_t value, size_t bytes) override {
    device_.check_fault(Call::fill, "fill");
    inner_->fill(to, value, bytes);
  }
  void record(Event& event) override { inner_->record(event); }
  void wait(const Event& event) override { inner_->wait(event); }
  void begin_capture() override { inner_->begin_capture(); }
  std::unique_ptr<Graph> end_capture() override { return inner_->end_capture(); }
  void replay(const Graph& graph) override {
    device_.check_fault(Call::replay, "replay of a graph");
    inner_->replay(graph);
  }
  bool idle() override { return inner_->idle(); }
  void synchronize(std::chrono::milliseconds limit) override {
    device_.check_fault(Call::synchronize, "synchronisation");  // what was begun goes on
    inner_->synchronize(limit);
  }
  void launch_kernel(const Kernel& kernel, const Shape& shape, const void* params) override {
    device_.check_fault(Call::launch, "launch");
    inner_->launch_kernel(kernel, shape, params);
  }

 private:
  const Device& device_;
  std::unique_ptr<Stream> inner_;
};

std::unique_ptr<Stream> DecoratedDevice::create_stream() {
  return std::make_unique<DecoratedStream>(*this, inner_.create_stream());
}

/// Fails the n-th call of a kind.
std::function<bool(Call)> nth(Call kind, int n) {
  return [kind, left = n](Call call) mutable { return call == kind && --left == 0; };
}

/// Takes its time.
class SlowReader final : public experts::Reader {
 public:
  /// `in_flight` (or nullptr) is told how many reads are.
  explicit SlowReader(std::unique_ptr<experts::Reader> reader, int* in_flight = nullptr)
      : reader_(std::move(reader)), in_flight_(in_flight) {}
  bool submit(const experts::ReadRequest& request) override {
    if (!reader_->submit(request)) return false;
    if (in_flight_ != nullptr) ++*in_flight_;
    return true;
  }
  size_t complete(std::span<experts::ReadCompletion> out, bool wait) override {
    if (!wait && ++asked_ % 50 != 0) return 0;
    if (wait) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const size_t n = reader_->complete(out, wait);
    if (in_flight_ != nullptr) *in_flight_ -= static_cast<int>(n);
    return n;
  }
  std::string_view name() const override { return "slow"; }

 private:
  std::unique_ptr<experts::Reader> reader_;
  int* in_flight_;
  int asked_ = 0;
};

/// While `failing`, some reads fail.
class SwitchedReader final : public experts::Reader {
 public:
  explicit SwitchedReader(const bool& failing) : failing_(failing) {}
  bool submit(const experts::ReadRequest& request) override {
    return (failing_ && ++submitted_ % 7 == 0 ? failing_reader_ : reader_).submit(request);
  }
  size_t complete(std::span<experts::ReadCompletion> out, bool wait) override {
    const size_t n = failing_reader_.complete(out, false);
    return n > 0 ? n : reader_.complete(out, wait);
  }
  std::string_view name() const override { return "switched"; }

 private:
  const bool& failing_;
  int submitted_ = 0;
  experts::FaultyReader reader_{experts::make_thread_reader(), {.short_read = 50, .held_back = 100}, 7};
  experts::FaultyReader failing_reader_{experts::make_thread_reader(), {.io_error = 1000}, 7};
};

class Faults : public ::testing::Test {
 protected:
  GpuOptions options(Residency residency, DecodeMode mode = DecodeMode::automatic) const {
    GpuOptions o;
    o.context = 32;
    o.batch = 8;
    o.experts.residency = residency;
    if (residency == Residency::full) return o;
    o.experts.cache_bytes = 2 * HostDecode::least_cache_bytes(model);
    if (residency == Residency::device) o.experts.cache_bytes = DeviceModel::least_cache_bytes(model);
    o.experts.host_tier = {CacheSize::Kind::Bounded, 3 * experts::ExpertCache::minimum_bytes(model)};
    o.experts.host.io = experts::IoMode::Buffered;
    o.experts.host.decode = mode;
    return o;
  }
  std::vector<float> logits(GpuRunner& runner) const {
    std::vector<float> result;
    for (const Token& token : tokens) {
      const std::span<const float> one = runner.forward({&token, 1}, LogitsFor::Last);
      result.insert(result.end(), one.begin(), one.end());
    }
    return result;
  }

  experts::Watchdog watchdog{250};
  TemporaryModel file{TinyModel("qwen3next")};
  model::Model model{file.path()};
  std::vector<Token> tokens = some_tokens(6, TinyModel::kVocab);
  std::unique_ptr<Device> inner = open_emulator({.threads = 1});
};

// Every call of the runtime fails in its turn, through the opening and the first tokens: each time there is
// one line that says so, and nothing is left on the device.
TEST_F(Faults, EveryCallThatFailsIsReportedAndLeavesNothing) {
  tokens.resize(2);
  for (const Residency residency : {Residency::full, Residency::device, Residency::host}) {
    for (const Call kind : {Call::allocate, Call::allocate_host, Call::register_host, Call::copy, Call::fill,
                            Call::launch, Call::replay, Call::synchronize}) {
      int failures = 0;
      // The first, the second, the fourth ...
      for (int n = 1;; n += n) {
        const std::string error = experts::error_of([&] {
          GpuRunner runner(model, std::make_unique<DecoratedDevice>(*inner, nth(kind, n)),
                           options(residency));
          logits(runner);
        });
        EXPECT_EQ(inner->memory().device, 0u) << error;
        EXPECT_EQ(inner->memory().host, 0u) << error;
        EXPECT_EQ(inner->memory().registered, 0u) << error;
        if (error == "no error") break;
        ASSERT_LT(++failures, 200);
        EXPECT_THAT(error, AllOf(HasSubstr("injected fault"), Not(HasSubstr("\n"))));
      }
      if (kind == Call::register_host && residency == Residency::full) continue;
      EXPECT_GT(failures, 0) << static_cast<int>(kind);
    }
  }
}

TEST_F(Faults, AFailedTokenIsForgottenByAReset) {
  for (const DecodeMode mode : {DecodeMode::sync, DecodeMode::routed}) {
    bool armed = false;
    auto device = std::make_unique<DecoratedDevice>(*inner, [&armed](Call call) {
      return armed && call == Call::launch;  // of a load, the only launch besides the graphs
    });
    GpuRunner runner(model, std::move(device), options(Residency::host, mode));
    const std::vector<float> expected = logits(runner);
    armed = true;
    runner.reset();
    EXPECT_THAT(experts::error_of([&] { logits(runner); }), HasSubstr("injected fault"));
    armed = false;
    runner.reset();
    EXPECT_EQ(logits(runner), expected);
  }
}

TEST_F(Faults, SlowReadsChangeNothing) {
  const std::vector<float> expected = [&] {
    GpuRunner runner(model, open_emulator({.threads = 1}), options(Residency::full));
    return logits(runner);
  }();
  for (const DecodeMode mode : {DecodeMode::sync, DecodeMode::routed}) {
    GpuOptions o = options(Residency::host, mode);
    o.experts.host.reader = [] { return std::make_unique<SlowReader>(experts::make_thread_reader()); };
    GpuRunner runner(model, open_emulator({.threads = 1}), o);
    EXPECT_EQ(logits(runner), expected);
    EXPECT_GT(runner.host_decode()->tier_statistics().stall_seconds, 0.001);
  }
}

// Reads fail at random, of urgent loads and of those ahead. Whoever asks again gets the right answer.
TEST_F(Faults, FailedReadsNameFileAndExpertAndTheRunnerGoesOn) {
  const std::vector<float> expected = [&] {
    GpuRunner runner(model, open_emulator({.threads = 1}), options(Residency::full));
    return logits(runner);
  }();
  for (const DecodeMode mode : {DecodeMode::sync, DecodeMode::routed}) {
    GpuOptions o = options(Residency::host, mode);
    o.experts.host.reader = [] {
      return std::make_unique<experts::FaultyReader>(experts::make_thread_reader(),
                                                     experts::Faults{.short_read = 50, .io_error = 8}, 7);
    };
    GpuRunner runner(model, open_emulator({.threads = 1}), o);
    int failed = 0, right = 0;
    for (int attempt = 0; attempt < 40 && (right == 0 || failed == 0); ++attempt) {
      runner.reset();
      const std::string error = experts::error_of([&] {
        EXPECT_EQ(logits(runner), expected);
        ++right;
      });
      if (error == "no error") continue;
      ++failed;
      EXPECT_THAT(error, AllOf(HasSubstr(file.path()), HasSubstr("expert"), Not(HasSubstr("\n"))));
    }
    EXPECT_GT(failed, 0);
    EXPECT_GT(right, 0);
  }
}

// The same where a chunk brings its experts: all of them, or those it selects.
TEST_F(Faults, AFailedReadInAChunkIsOneErrorAndTheRunnerGoesOn) {
  for (const int streamed_from : {2, 64}) {
    GpuOptions o = options(Residency::full);
    const auto prompt = [&](GpuRunner& runner) {
      const std::span<const float> all = runner.forward(tokens, LogitsFor::All);
      return std::vector<float>(all.begin(), all.end());
    };
    GpuRunner resident(model, open_emulator({.threads = 1}), o);
    const std::vector<float> expected = prompt(resident);
    resident.reset();
    const std::vector<float> decoded = logits(resident);
    o = options(Residency::host);
    o.streamed_from = streamed_from;
    bool failing = false;
    o.experts.host.reader = [&failing] { return std::make_unique<SwitchedReader>(failing); };
    GpuRunner runner(model, open_emulator({.threads = 1}), o);
    int failed = 0;
    for (int i = 0; i < 4; ++i) {
      runner.reset();
      EXPECT_EQ(logits(runner), decoded) << "a slot of decode was spoilt";
      failing = i % 2 == 0;
      runner.reset();
      const std::string error = experts::error_of([&] { EXPECT_EQ(prompt(runner), expected); });
      failing = false;
      if (error == "no error") continue;
      ++failed;
      EXPECT_THAT(error, AllOf(HasSubstr(file.path()), HasSubstr("expert"), Not(HasSubstr("\n"))));
      runner.reset();
      EXPECT_EQ(prompt(runner), expected);
    }
    EXPECT_GT(failed, 0);
    EXPECT_LE(failed, 2);
  }
}

TEST_F(Faults, ACallThatFailsInAChunkIsOneErrorAndTheRunnerGoesOn) {
  for (const Residency residency : {Residency::device, Residency::host}) {
    for (const Call kind : {Call::copy, Call::launch, Call::synchronize}) {
      Call fails = Call::allocate;
      int left = 0;
      GpuOptions o = options(residency);
      o.streamed_from = 4;
      GpuRunner runner(
          model,
          std::make_unique<DecoratedDevice>(*inner, [&](Call call) { return call == fails && --left == 0; }),
          o);
      const auto chunk = [&] {
        runner.reset();
        const std::span<const float> all = runner.forward(tokens, LogitsFor::Last);
        return std::vector<float>(all.begin(), all.end());
      };
      const std::vector<float> expected = chunk();
      runner.reset();
      const std::vector<float> decoded = logits(runner);
      int failures = 0;
      for (int n = 1;; n *= 4) {
        fails = kind;
        left = n;
        const std::string error = experts::error_of(chunk);
        fails = Call::allocate;
        EXPECT_EQ(chunk(), expected);
        if (error == "no error") break;
        ++failures;
        EXPECT_THAT(error, AllOf(HasSubstr("injected fault"), Not(HasSubstr("\n"))));
      }
      EXPECT_GT(failures, 0);
      runner.reset();
      EXPECT_EQ(logits(runner), decoded) << "a slot of decode was spoilt";
    }
  }
}

// A chunk that fails on its way has filled some of the device's slots: what the table says is there is there.
TEST_F(Faults, AChunkThatFailsLeavesNoEntryOfASlotThatIsNotFilled) {
  GpuOptions o = options(Residency::full);
  GpuRunner resident(model, open_emulator({.threads = 1}), o);
  const std::vector<float> expected = logits(resident);
  o = options(Residency::device);
  o.streamed_from = 4;
  o.experts.cache_bytes = DeviceModel::expert_bytes(model);
  for (const Call kind : {Call::copy, Call::launch}) {
    int partly_filled = 0;
    for (int n = 1;; n += 11) {
      int left = 0;
      GpuRunner runner(
          model,
          std::make_unique<DecoratedDevice>(*inner, [&](Call call) { return call == kind && --left == 0; }),
          o);
      left = n;
      const std::string error = experts::error_of([&] { runner.forward(tokens, LogitsFor::Last); });
      left = 0;
      size_t filled = 0;
      for (const experts::ExpertUse& use : runner.expert_uses()) filled += use.resident ? 1 : 0;
      if (filled > 0 && filled < runner.expert_uses().size()) ++partly_filled;
      runner.reset();
      EXPECT_EQ(logits(runner), expected) << filled << " filled";
      if (error == "no error") break;
    }
    EXPECT_GT(partly_filled, 0);
  }
}

TEST_F(Faults, SlowReadsInAChunkChangeNothingAndRunBesideIt) {
  const auto prompt = [&](GpuRunner& runner) {
    const std::span<const float> all = runner.forward(tokens, LogitsFor::All);
    return std::vector<float>(all.begin(), all.end());
  };
  GpuRunner resident(model, open_emulator({.threads = 1}), options(Residency::full));
  const std::vector<float> expected = prompt(resident);
  for (const int streamed_from : {2, 64}) {
    GpuOptions o = options(Residency::host);
    o.streamed_from = streamed_from;
    o.experts.host_tier->bytes = experts::ExpertCache::full_bytes(model);
    int in_flight = 0, beside = 0;
    o.experts.host.reader = [&] {
      return std::make_unique<SlowReader>(experts::make_thread_reader(), &in_flight);
    };
    GpuRunner runner(model,
                     std::make_unique<DecoratedDevice>(*inner,
                                                       [&](Call call) {
                                                         if (call == Call::launch && in_flight > 0) ++beside;
                                                         return false;
                                                       }),
                     o);
    EXPECT_EQ(prompt(runner), expected);
    EXPECT_GT(beside, TinyModel::kLayers) << "kernels that were launched while reads were under way";
    EXPECT_GT(runner.host_decode()->tier_statistics().stall_seconds, 0.001);
  }
}

TEST_F(Faults, ATierTooSmallNamesTheLeastThatWorks) {
  GpuOptions o = options(Residency::host);
  o.experts.host_tier = {CacheSize::Kind::Bounded, experts::ExpertCache::minimum_bytes(model) - 1};
  EXPECT_THAT(experts::error_of([&] { GpuRunner(model, open_emulator({.threads = 1}), o); }),
              HasSubstr("the least that works is --host-cache-mib 1"));
  o = options(Residency::host);
  o.experts.cache_bytes = HostDecode::least_cache_bytes(model) - 1;
  EXPECT_THAT(experts::error_of([&] { GpuRunner(model, open_emulator({.threads = 1}), o); }),
              HasSubstr("the least that works is --cache-mib 1"));
}

// All device memory has a name: what is allocated is what is stated, and the parts are what they must be.
TEST_F(Faults, DeviceMemoryIsCacheAndDenseAndStateAndScratch) {
  for (const Residency residency : {Residency::full, Residency::device, Residency::host}) {
    const GpuOptions o = options(residency);
    GpuRunner runner(model, std::make_unique<DecoratedDevice>(*inner, nullptr), o);
    logits(runner);
    const DeviceUse use = runner.device_use();
    EXPECT_EQ(use.total(), inner->memory().device);
    if (residency == Residency::full) {
      EXPECT_EQ(use.cache, DeviceModel::expert_bytes(model));
    } else {
      EXPECT_LE(use.cache, *o.experts.cache_bytes + 255 * TinyModel::kLayers);
      EXPECT_GT(use.cache, *o.experts.cache_bytes / 2);
    }
    const uint64_t kv = uint64_t{32} * TinyModel::kKvHeads * TinyModel::kHeadDim * sizeof(float) * 2;
    const uint64_t delta = sizeof(float) * (2 * (TinyModel::kConvKernel - 1) * TinyModel::kConvDim +
                                            TinyModel::kValueDim * TinyModel::kStateDim);
    EXPECT_EQ(use.state, kv + 3 * delta) << "one attention layer, three DeltaNet layers";
    EXPECT_GE(use.dense, model.dense_bytes() / 2);
    EXPECT_LE(use.scratch, size_t{16} << 20);
  }
}

// The choice that is left open counts everything else first: to the byte.
TEST_F(Faults, AutomaticPlacementLeavesRoomForTheState) {
  constexpr uint64_t kReserve = uint64_t{512} << 20;
  const auto open = [&](uint64_t memory, GpuOptions o, int context) {
    o.context = context;
    o.batch = 8;
    return std::make_unique<GpuRunner>(model, open_emulator({.threads = 1, .memory = memory}), o);
  };
  const DeviceUse use = open(size_t{2} << 30, options(Residency::device), 128)->device_use();
  const uint64_t exact = kReserve + use.total() - use.cache + DeviceModel::expert_bytes(model);
  const auto full = open(exact, {}, 128);
  EXPECT_EQ(full->residency(), Residency::full);
  EXPECT_THAT(full->description(), HasSubstr("chosen with"));
  EXPECT_EQ(open(exact - 1, {}, 128)->residency(), Residency::device);
  EXPECT_EQ(open(exact, {}, 160)->residency(), Residency::device) << "the state has taken its part";
}

}  // namespace
}  // namespace redlite::gpu
