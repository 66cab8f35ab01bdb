#include "trace/trace.h"

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/quote.h"
#include "cli/commands.h"
#include "cli/generation_options.h"
#include "cli/options.h"
#include "engine/generate.h"
#include "engine/open_runner.h"
#include "plot/heat_map.h"
#include "tokenizer/tokenizer.h"
#include "trace/recorder.h"

namespace redlite::cli {
namespace {

struct TraceCommand {
  std::string model, out, plot;
  PromptOptions prompt;
  int n = 256;
  bool ignore_end = false;
  engine::SamplerOptions sampler;
  engine::RunnerOptions runner;
};

void plot_selections(const std::string& path, const trace::Trace& trace) {
  plot::HeatMap map;
  map.title = fmt::format("How often each expert was selected in {} tokens", trace.n_tokens());
  map.x_label = "expert";
  map.y_label = "layers";
  map.rows = static_cast<size_t>(trace.n_layers);
  map.columns = static_cast<size_t>(trace.n_experts);
  map.counts.resize(map.rows * map.columns);
  for (size_t t = 0; t < trace.n_tokens(); ++t)
    for (int l = 0; l < trace.n_layers; ++l)
      for (const uint16_t e : trace.experts(t, l)) ++map.counts[static_cast<size_t>(l) * map.columns + e];
  const std::string svg = map.svg();
  write_file_atomically(path, std::as_bytes(std::span(svg)));
}

void run(const TraceCommand& c) {
  check_output(c.out, {c.model, c.prompt.file});
  if (!c.plot.empty()) check_output(c.plot, {c.model, c.prompt.file, c.out});
  const model::Model model(c.model);
  const tokenizer::Tokenizer tokenizer(model.file());
  std::vector<model::Token> tokens = read_prompt(c.prompt, model, tokenizer);
  const int context = context_for(model, tokens.size(), c.n, c.runner.context);
  const engine::OpenRunner open = open_runner(model, c.runner, context);
  trace::Recorder recorder(model);
  open.runner->set_tap(recorder.tap());

  engine::GenerateOptions options;
  options.max_tokens = c.n;
  options.sampler = c.sampler;
  options.ignore_end = c.ignore_end;
  options.cancel = &interrupted_by_user();
  const size_t n_prompt = tokens.size();
  trace::Trace trace;
  {
    Progress bar("tracing", n_prompt + static_cast<size_t>(c.n), ProgressUnit::Tokens);
    open.runner->set_progress([&](double done) { bar.reach(done); });
    const engine::GenerateResult result =
        engine::generate(*open.runner, tokenizer, tokens, options,
                         [&](std::string_view) { bar.reach(open.runner->position()); });
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    trace = recorder.finish(tokens);
  }
  trace::write_trace(c.out, trace);
  fmt::print("{}: {} tokens, {} of them decoded; {} of {} experts in {} layers\n", one_line(c.out),
             trace.n_tokens(), trace.n_tokens() - n_prompt, trace.n_used, trace.n_experts, trace.n_layers);
  if (!c.plot.empty()) plot_selections(c.plot, trace);
}

}  // namespace

void add_trace(CLI::App& app) {
  auto c = std::make_shared<TraceCommand>();
  CLI::App* command = app.add_subcommand(
      "trace", "Write down which experts a run uses, for `redlite simulate` or a picture of it");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->type_name("MODEL");
  command->add_option("-o,--out", c->out, "the trace to write")->required()->type_name("FILE");
  command->add_option("--plot", c->plot, "draw how often each layer selected each expert, as SVG")
      ->type_name("FILE");
  add_prompt_options(*command, c->prompt);
  command->add_option("-n,--n-predict", c->n, "most tokens to generate")
      ->type_name("N")
      ->check(in_range(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--ignore-eos", c->ignore_end, "go on past the end-of-text token");
  add_sampler_options(*command, c->sampler);
  add_runner_options(*command, c->runner);
  command->callback([=] {
    check_one_prompt(*command);
    run(*c);
  });
}

}  // namespace redlite::cli
