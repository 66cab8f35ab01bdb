#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/version.h"
#include "model/temporary_model.h"

namespace redlite::bench {
namespace {

using redlite::testing::TemporaryModel;
using redlite::testing::TinyModel;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Measurement decode_measurement() {
  Measurement m;
  m.test = {TestKind::Decode, 10, 4096};
  m.seconds = {2, 1, 4};
  m.counters = {80, 100, 3 << 20, 0.3, {{"experts", 6.0}, {"output", 0.9}}};
  m.floor_bytes = 2e9;
  return m;
}

Setting bounded() {
  Setting setting;
  setting.backend = "cpu";
  setting.kernels = "scalar";
  setting.threads = 2;
  setting.cache_mib = 4096;
  setting.memory_bandwidth = 40e9;
  setting.peak_memory_bytes = uint64_t{5} << 30;
  setting.disk = machine::DiskSpeed{2e6, true, "io_uring"};
  return setting;
}

TEST(Report, ComparesWithBareReads) {
  Measurement m = decode_measurement();
  m.replay_seconds = {1, 0.5, 7};
  const nlohmann::ordered_json json = describe(m, bounded(), nullptr);
  EXPECT_EQ(json["replay_tok_s"], 10);
  EXPECT_EQ(json["replay_fraction"], 0.5);
  EXPECT_THAT(table_row(json), HasSubstr(" 50.0 %"));
}

TEST(Report, ComputesRatesAndFractions) {
  const nlohmann::ordered_json json = describe(decode_measurement(), bounded(), nullptr);
  EXPECT_EQ(json["test"], "decode");
  EXPECT_EQ(json["decode_tok_s"], 5.0) << "median of 5, 10 and 2.5";
  EXPECT_EQ(json["min"], 2.5);
  EXPECT_EQ(json["max"], 10.0);
  EXPECT_EQ(json["cache_mib"], 4096);
  EXPECT_EQ(json["hit_rate"], 0.8);
  EXPECT_EQ(json["floor_tok_s"], 20.0);
  EXPECT_EQ(json["floor_fraction"], 0.25);
  EXPECT_EQ(json["peak_memory_mib"], 5120.0);
  const double read = (3 << 20) / 30.0;
  EXPECT_DOUBLE_EQ(json["bytes_read_per_token"], read);
  EXPECT_DOUBLE_EQ(json["disk_fraction"], read * 5 / 2e6);
  EXPECT_DOUBLE_EQ(json["stage_seconds_per_token"]["experts"], 0.2);
  EXPECT_FALSE(json.contains("against"));
}

TEST(Report, NamesPrefillAndAFullCache) {
  Measurement m = decode_measurement();
  m.test.kind = TestKind::Prefill;
  Setting setting = bounded();
  setting.cache_mib.reset();
  const nlohmann::ordered_json json = describe(m, setting, nullptr);
  EXPECT_EQ(json["prefill_tok_s"], 5.0);
  EXPECT_FALSE(json.contains("decode_tok_s"));
  EXPECT_EQ(json["cache_mib"], "full");
}

TEST(Report, ShowsADevicesMemoryAndWhereExpertsAre) {
  Setting setting = bounded();
  setting.backend = "cuda";
  setting.device = "NVIDIA H200";
  setting.residency = "device";
  setting.device_memory_bytes = uint64_t{6} << 30;
  const nlohmann::ordered_json json = describe(decode_measurement(), setting, nullptr);
  EXPECT_EQ(json["residency"], "device");
  EXPECT_EQ(json["device_memory_mib"], 6144.0);
  EXPECT_EQ(json["peak_memory_mib"], 5120.0) << "the host's, as ever";
  EXPECT_FALSE(json.contains("threads"));
  EXPECT_THAT(table_row(json), StartsWith("4096 device "));
  EXPECT_THAT(table_row(json), HasSubstr(" 6144 MiB"));
  EXPECT_EQ(table_head(false).size(), table_row(json).size());
}

TEST(Report, ComparesMediansWithTheRival) {
  Rival rival(R"(echo '[{"n_prompt": 0, "n_gen": 10, "n_depth": 4096, "samples_ts": [2, 3, 1]}]')");
  const Measurement m = decode_measurement();
  rival.warm_up({m.test});
  rival.run();
  nlohmann::ordered_json json = describe(m, bounded(), &rival);
  EXPECT_EQ(json["against"]["tok_s"], 2.0);
  EXPECT_EQ(json["against"]["ratio"], 2.5);
  EXPECT_THAT(table_row(json), HasSubstr("2.50x"));
  Measurement other = m;
  other.test.depth = 0;
  json = describe(other, bounded(), &rival);
  EXPECT_FALSE(json["against"].contains("ratio"));
  EXPECT_THAT(table_row(json), Not(HasSubstr("x")));
}

TEST(Report, RowsStandUnderTheHead) {
  const std::string head = table_head(false),
                    row = table_row(describe(decode_measurement(), bounded(), nullptr));
  EXPECT_EQ(head.size(), row.size());
  EXPECT_EQ(head.find("memory") + 6, row.find("MiB\n") + 3);
  EXPECT_THAT(row, StartsWith("4096 "));
  EXPECT_THAT(row, HasSubstr(" 5.00  2.50 - 10.00"));
  EXPECT_THAT(row, HasSubstr("25.0 %"));
  EXPECT_THAT(row, HasSubstr("80.0 %"));
}

TEST(Report, SaysWhatRan) {
  TinyModel tiny("qwen3next");
  tiny.metadata["general.name"] = std::string("Evil\x1b[2J");
  const TemporaryModel file(tiny);
  const model::Model model(file.path());
  const nlohmann::ordered_json json = describe_run(model, machine::describe());
  EXPECT_EQ(json["types"]["experts"], "F32");
  EXPECT_EQ(json["file"], file.path());
  EXPECT_EQ(json["version"], version());
  EXPECT_FALSE(commit().empty());
  EXPECT_GT(json["machine"]["cores"], 0);
  EXPECT_THAT(heading(json, bounded()), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace redlite::bench
