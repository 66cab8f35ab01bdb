#pragma once

#include <optional>
#include <string>
#include <vector>

namespace redlite::cli {

/// A file of a folder that belongs to this program's user: "~/.redlite/NAME"; empty without a home.
std::string user_file(const std::string& name);

/// Where this program's user keeps models, as a message names it.
std::string models_folder();

/// The GGUF files of a folder and its folders, sorted; of a split set the first. Empty if there is no such
/// folder. Throws Error for one that cannot be read.
std::vector<std::string> model_files(const std::string& folder);

/// The bundled model, if it lies where this program was built or installed.
std::optional<std::string> demo_model();

/// What is run when no model was named: of those in ~/.redlite/models that this machine can run, the largest
/// whose weights all fit into memory, or else the smallest; without any, the bundled one. Throws Error with
/// what to do when there is none.
std::string choose_model();

}  // namespace redlite::cli
