#include "bench/rival.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/quote.h"
#include "bench/command.h"

namespace redlite::bench {
namespace {

using nlohmann::json;

int count_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() || found->get<uint64_t>() > 1 << 30)
    fail("--against: the command's JSON has no usable {}; it must print what llama-bench -o json prints",
         key);
  return found->get<int>();
}

std::vector<double> rates_of(const json& object) {
  std::vector<double> rates;
  if (const auto samples = object.find("samples_ts"); samples != object.end() && samples->is_array()) {
    for (const json& rate : *samples) {
      if (rate.is_number()) rates.push_back(rate.get<double>());
    }
  }
  const auto mean = object.find("avg_ts");
  if (rates.empty() && mean != object.end() && mean->is_number()) rates.push_back(mean->get<double>());
  const auto usable = [](double rate) { return rate > 0 && rate < 1e12; };
  if (rates.empty() || !std::ranges::all_of(rates, usable))
    fail(
        "--against: the command's JSON has no usable samples_ts or avg_ts; it must print what llama-bench -o "
        "json prints");
  return rates;
}

}  // namespace

std::string Test::name() const {
  return fmt::format("{} {}", kind == TestKind::Prefill ? "prefill" : "decode", tokens);
}

std::vector<RivalSample> parse_llama_bench(std::string_view text) {
  const json tests = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!tests.is_array() || tests.empty())
    fail("--against: the command printed {}, not the JSON array of llama-bench -o json", quote(text, 40));
  std::vector<RivalSample> samples;
  for (const json& test : tests) {
    if (!test.is_object()) fail("--against: the command's JSON array holds something that is no object");
    const int n_prompt = count_of(test, "n_prompt"), n_gen = count_of(test, "n_gen");
    const int depth = test.contains("n_depth") ? count_of(test, "n_depth") : 0;
    if ((n_prompt > 0) == (n_gen > 0)) continue;
    const TestKind kind = n_prompt > 0 ? TestKind::Prefill : TestKind::Decode;
    samples.push_back({{kind, std::max(n_prompt, n_gen), depth}, rates_of(test)});
  }
  return samples;
}

void Rival::warm_up(const std::vector<Test>& tests) {
  for (const RivalSample& sample : parse_llama_bench(run_command(command_))) measured_.push_back(sample.test);
  const auto wanted = [&](const Test& test) { return measures(test); };
  if (std::ranges::any_of(tests, wanted)) return;
  const auto describe = [](const std::vector<Test>& all) {
    std::vector<std::string> names;
    for (const Test& test : all) names.push_back(fmt::format("{} at {}", test.name(), test.depth));
    return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
  };
  fail("--against: the command measures {}, and this run {}: nothing to compare", describe(measured_),
       describe(tests));
}

void Rival::run() {
  for (RivalSample& sample : parse_llama_bench(run_command(command_))) samples_.push_back(std::move(sample));
}

bool Rival::measures(const Test& test) const {
  return std::ranges::find(measured_, test) != measured_.end();
}

std::vector<double> Rival::rates(const Test& test) const {
  std::vector<double> rates;
  for (const RivalSample& sample : samples_) {
    if (sample.test == test) rates.insert(rates.end(), sample.rates.begin(), sample.rates.end());
  }
  return rates;
}

}  // namespace redlite::bench
