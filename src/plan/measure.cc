#include "plan/measure.h"

#include <algorithm>
#include <vector>

#include "bench/traffic.h"

namespace redlite::plan {
namespace {

class Quiet final : public bench::Watcher {
 public:
  void begin(const std::string&, uint64_t) override {}
  void reach(double) override {}
  void end() override {}
};

std::vector<bench::Test> tests_of(const Length& length) {
  return {{bench::TestKind::Prefill, length.prompt, 0}, {bench::TestKind::Decode, length.decode, 0}};
}

}  // namespace

int Length::context() const {
  return static_cast<int>(bench::Bench::tokens_needed(tests_of(*this), repetitions));
}

Speeds measure(const model::Model& model, model::Runner& runner, int bytes_kv, const Length& length,
               std::function<bench::Counters()> counters) {
  const bench::Traffic traffic(model, bytes_kv);
  bench::Subject subject{runner, model.config().n_vocab, traffic, std::move(counters)};
  Quiet quiet;
  bench::Bench bench(length.repetitions, nullptr, quiet);
  Speeds speeds;
  for (const bench::Measurement& m : bench.run(subject, tests_of(length))) {
    const double rate = m.test.tokens / bench::median(m.seconds);
    if (m.test.kind == bench::TestKind::Prefill) {
      speeds.prefill_tok_s = rate;
      continue;
    }
    speeds.decode_tok_s = rate;
    if (m.counters.selections > 0)
      speeds.hit_rate = static_cast<double>(m.counters.hits) / static_cast<double>(m.counters.selections);
  }
  return speeds;
}

}  // namespace redlite::plan
