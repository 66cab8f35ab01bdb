#include "reference/parity.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "engine/open_runner.h"
#include "model/model.h"

namespace redlite::cli {
namespace {

struct ParityCommand {
  std::string model;
  std::string tokens;
  std::string a = "reference";
  std::string b = "cpu";
  bool json = false;
  engine::RunnerOptions runner;
};

/// JSON has no infinity; a huge number stands for it.
double finite(double value) {
  return std::isfinite(value) ? value : 1e300;
}

nlohmann::json to_json(const reference::ErrorMeasure& m) {
  return {
      {"absolute", finite(m.absolute)},    {"worst", finite(m.worst)},     {"position", m.position},
      {"overall", finite(m.overall)},      {"worst_bound", m.worst_bound}, {"overall_bound", m.overall_bound},
      {"within_bounds", m.within_bounds()}};
}

nlohmann::json to_json(const reference::ParityReport& report) {
  nlohmann::json stages = nlohmann::json::array();
  for (const reference::StageError& s : report.stages)
    stages.push_back({{"stage", model::stage_name(s.stage)},
                      {"layer", s.layer},
                      {"local", to_json(s.local)},
                      {"drift", to_json(s.drift)}});
  nlohmann::json differences = nlohmann::json::array();
  for (const reference::SelectionDifference& d : report.differences)
    differences.push_back({{"layer", d.layer},
                           {"position", d.position},
                           {"rank", d.rank},
                           {"expert_a", d.expert_a},
                           {"expert_b", d.expert_b},
                           {"margin", finite(d.margin)},
                           {"perturbation", finite(d.perturbation)},
                           {"near_tie", d.near_tie}});
  return {{"passed", report.failures.empty()},
          {"n_tokens", report.n_tokens},
          {"stages", stages},
          {"selection_differences", differences},
          {"selection_consequences", report.consequences},
          {"kl",
           {{"mean", finite(report.mean_kl)},
            {"median", finite(report.median_kl)},
            {"max", finite(report.max_kl)}}},
          {"top1_equal", report.top1_equal},
          {"failures", report.failures}};
}

/// "absolute worst overall position", with a ! behind what is out of bounds.
std::string columns(const reference::ErrorMeasure& m) {
  return fmt::format("{:>9.2e} {:>9.2e} {:>9.2e} {:>5}{}", m.absolute, m.worst, m.overall, m.position,
                     m.within_bounds() ? ' ' : '!');
}

void print_table(const reference::ParityReport& report) {
  const std::string measures = fmt::format("{:>9} {:>9} {:>9} {:>5} ", "absolute", "worst", "overall", "at");
  fmt::print("{:21} | {:^36}| {:^36}\n", "", "local error", "drift");
  fmt::print("{:>5} {:<15} | {}| {}\n", "layer", "stage", measures, measures);
  for (const reference::StageError& s : report.stages)
    fmt::print("{:>5} {:<15} | {}| {}\n", s.layer < 0 ? std::string("-") : std::to_string(s.layer),
               model::stage_name(s.stage), columns(s.local), columns(s.drift));
  fmt::print("\n");
  for (const reference::SelectionDifference& d : report.differences)
    fmt::print("layer {} position {} rank {}: expert {} against {}, margin {:.3g}, perturbation {:.3g}: {}\n",
               d.layer, d.position, d.rank, d.expert_a, d.expert_b, d.margin, d.perturbation,
               d.near_tie ? "a near-tie" : "NOT a near-tie");
  fmt::print("selections: {} differ by themselves, {} more behind those\n", report.differences.size(),
             report.consequences);
  fmt::print("logits: KL mean {:.3g}, median {:.3g}, max {:.3g}; the same best token after {} of {}\n",
             report.mean_kl, report.median_kl, report.max_kl, report.top1_equal, report.n_tokens);
  for (const std::string& failure : report.failures) fmt::print("FAILED: {}\n", failure);
}

engine::OpenRunner open(const model::Model& model, engine::RunnerOptions options, const std::string& backend,
                        int context) {
  options.backend = backend;
  return open_runner(model, options, context);
}

void parity(const ParityCommand& c) {
  const model::Model model(c.model);
  const std::vector<model::Token> tokens = parse_tokens(c.tokens, model.config().n_vocab);
  const int needed = static_cast<int>(tokens.size());
  const engine::OpenRunner a = open(model, c.runner, c.a, needed);
  const engine::OpenRunner b = open(model, c.runner, c.b, needed);
  reference::ParityOptions options;
  options.half_precision_kv = c.runner.kv == "f16";
  const reference::ParityReport report = reference::compare(model, *a.runner, *b.runner, tokens, options);
  if (c.json)
    fmt::print("{}\n", to_json(report).dump(1));
  else
    print_table(report);
  if (!report.failures.empty()) {
    std::fflush(stdout);
    fail("{} and {} differ: {}{}", c.a, c.b, report.failures.front(),
         report.failures.size() > 1 ? fmt::format(" (and {} more)", report.failures.size() - 1) : "");
  }
}

}  // namespace

void add_parity(CLI::App& app) {
  auto c = std::make_shared<ParityCommand>();
  CLI::App* command = app.add_subcommand("parity", "Compare two backends stage by stage (docs/parity.md)");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->option_text("MODEL");
  command->add_option("--tokens", c->tokens, "Token ids: 1,2,3 or @file")->required()->option_text("IDS");
  command->add_option("--a", c->a, "the backend that is right")
      ->check(CLI::IsMember({"reference", "cpu", "cuda", "emulator"}))
      ->capture_default_str();
  command->add_option("--b", c->b, "the backend in question")
      ->check(CLI::IsMember({"reference", "cpu", "cuda", "emulator"}))
      ->capture_default_str();
  command->add_flag("--json", c->json, "Print JSON");
  c->runner.kv = "f32";  // what is compared should be exact first
  add_runner_options(*command, c->runner);
  command->remove_option(command->get_option("--backend"));
  command->callback([c] { parity(*c); });
}

}  // namespace redlite::cli
