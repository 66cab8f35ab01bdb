#include "convert/convert.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "base/quote.h"
#include "cli/commands.h"

namespace redlite::cli {

void add_convert(CLI::App& app) {
  struct Options {
    std::string model, out, to;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("convert", "Write a model anew with its weights in a plain type");
  command->add_option("model", options->model, "GGUF file to read; any part of a split model stands for all")
      ->required()
      ->type_name("MODEL");
  command->add_option("out", options->out, "GGUF file to write")->required()->type_name("OUT");
  command->add_option("--to", options->to, "type of the weights: f32 (exact), f16 or q8_0")
      ->required()
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}, CLI::ignore_case));
  command->callback([options] {
    const gguf::File file(options->model);
    const quant::TypeInfo* target = quant::find_type(options->to);
    const convert::Result result = convert::convert(file, options->out, target->type);
    fmt::print("{}: {} tensors, {} of them converted, {:.1f} MB\n", one_line(options->out), result.n_tensors,
               result.n_converted, static_cast<double>(result.bytes) / 1e6);
    if (result.n_fallback > 0) {
      fmt::print("{} tensors became F16, because their rows are not of whole blocks of {}\n",
                 result.n_fallback, target->name);
    }
  });
}

}  // namespace redlite::cli
