#include "bench/rival.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../support/temporary_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "bench/command.h"

namespace redlite::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr Test kPrefill{TestKind::Prefill, 64, 0};
constexpr Test kDecode{TestKind::Decode, 16, 512};

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Command, GivesWhatWasPrinted) {
  EXPECT_EQ(run_command("printf 'a\\nb'; echo noise >&2"), "a\nb");
  EXPECT_EQ(run_command("true"), "");
}

TEST(Command, EndlessOutputIsAnError) {
  EXPECT_THAT([] { run_command("yes"); }, ThrowsMessage<Error>(HasSubstr("printed more than 16 MiB")));
}

TEST(Command, FailuresNameStatusAndLastMessage) {
  EXPECT_THAT([] { run_command("echo first >&2; echo 'no such model' >&2; exit 3"); },
              ThrowsMessage<Error>(HasSubstr("exited with status 3: 'no such model'")));
  EXPECT_THAT([] { run_command("no_such_program_here"); }, ThrowsMessage<Error>(HasSubstr("status 127")));
}

TEST(LlamaBench, IsUnderstood) {
  const std::vector<RivalSample> samples = parse_llama_bench(R"([
    {"n_prompt": 64, "n_gen": 0, "n_depth": 0, "avg_ts": 2, "samples_ts": [1.5, 2.5], "devices": "auto"},
    {"n_prompt": 0, "n_gen": 16, "n_depth": 512, "avg_ts": 7},
    {"n_prompt": 64, "n_gen": 16, "n_depth": 0, "avg_ts": 9}])");
  ASSERT_EQ(samples.size(), 2u) << "a test of both is left out";
  EXPECT_EQ(samples[0].test, kPrefill);
  EXPECT_THAT(samples[0].rates, ElementsAre(1.5, 2.5));
  EXPECT_EQ(samples[1].test, kDecode);
  EXPECT_THAT(samples[1].rates, ElementsAre(7));
}

TEST(LlamaBench, OtherOutputIsAnError) {
  for (const char* text :
       {"", "| model | size |", "{}", "[]", "[1]", R"([{"n_prompt": 64, "n_gen": 0}])",
        R"([{"n_prompt": -1, "n_gen": 0, "avg_ts": 1}])", R"([{"n_prompt": 64, "n_gen": 0, "avg_ts": 0}])",
        R"([{"n_prompt": 64, "n_gen": 0, "avg_ts": "fast"}])",
        R"([{"n_prompt": 1e99, "n_gen": 0, "avg_ts": 1}])"}) {
    EXPECT_THAT([&] { parse_llama_bench(text); }, ThrowsMessage<Error>(HasSubstr("--against: "))) << text;
  }
}

TEST(Rival, WarmsUpThenCollects) {
  const testing::TemporaryFolder folder;
  // Each run is a little faster than the one before.
  const std::string script = fmt::format(
      "n=$(($(cat {0}) + 1)); echo $n >{0}; echo '[{{\"n_prompt\": 64, \"n_gen\": 0, \"avg_ts\": '$n'}}]'",
      folder / "count");
  write_file_atomically(folder / "count", bytes("0"));
  Rival rival(script);
  rival.warm_up({kDecode, kPrefill});
  EXPECT_TRUE(rival.measures(kPrefill));
  EXPECT_FALSE(rival.measures(kDecode));
  EXPECT_THAT(rival.rates(kPrefill), IsEmpty()) << "the warm-up does not count";
  rival.run();
  rival.run();
  EXPECT_THAT(rival.rates(kPrefill), ElementsAre(2, 3));
}

TEST(Rival, NothingInCommonIsAnError) {
  Rival rival(R"(echo '[{"n_prompt": 64, "n_gen": 0, "n_depth": 7, "avg_ts": 1}]')");
  EXPECT_THAT(
      [&] {
        rival.warm_up({kPrefill, kDecode});
      },
      ThrowsMessage<Error>(
          HasSubstr("measures prefill 64 at 7, and this run prefill 64 at 0, decode 16 at 512")));
}

}  // namespace
}  // namespace redlite::bench
