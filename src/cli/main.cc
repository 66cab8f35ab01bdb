#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "base/bus_error.h"
#include "base/error.h"
#include "base/quote.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  using namespace redlite;
  report_bus_errors();
  CLI::App app{"Red Lite runs sparse Mixture-of-Experts models that are larger than the machine's memory.",
               "redlite"};
  app.set_version_flag("--version", "redlite " REDLITE_VERSION);
  app.require_subcommand(1);
  cli::add_chat(app);
  cli::add_generate(app);
  cli::add_plan(app);
  cli::add_doctor(app);
  cli::add_models(app);
  cli::add_info(app);
  cli::add_tokenize(app);
  cli::add_logits(app);
  cli::add_parity(app);
  cli::add_serve(app);
  cli::add_bench(app);
  cli::add_perplexity(app);
  cli::add_synth(app);
  cli::add_convert(app);
  cli::add_kernel_selftest(app);
  cli::add_trace(app);
  cli::add_simulate(app);
  cli::add_completions(app);
  cli::add_help(app);
  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {  // --help and --version, too
      if (app.exit(e) != 0) return 2;
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      fail("standard output: {}", std::strerror(errno));
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "redlite: {}\n", one_line(e.what()));
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "redlite: out of memory; a smaller --cache-mib, --batch or --context needs less\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "redlite: {}\n", one_line(e.what()));
  }
  return 1;
}
