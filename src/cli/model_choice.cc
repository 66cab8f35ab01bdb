#include "cli/model_choice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"
#include "experts/cache.h"
#include "model/model.h"

namespace redlite::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 4;  ///< folders within folders

/// "-00002-of-00003.gguf": a part of a split set, but not the first.
bool is_later_part(const std::string& name) {
  const size_t of = name.rfind("-of-");
  return of != std::string::npos && of >= 6 && name[of - 6] == '-' && name.substr(of - 5, 5) != "00001" &&
         name.find_first_not_of("0123456789", of - 5) == of;
}

}  // namespace

std::string user_file(const std::string& name) {
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : fmt::format("{}/.redlite/{}", home, name);
}

std::string models_folder() {
  const std::string folder = user_file("models");
  return folder.empty() ? "~/.redlite/models (but HOME is not set)" : folder;
}

std::vector<std::string> model_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  if (folder.empty() || !fs::exists(folder, error)) return files;
  auto it = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
  if (error) fail("{}: cannot read the folder: {}", folder, error.message());
  for (; it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (error) fail("{}: cannot read the folder: {}", folder, error.message());
    if (it.depth() >= kDeepest) it.disable_recursion_pending();
    const fs::path& path = it->path();
    if (path.extension() != ".gguf" || is_later_part(path.filename())) continue;
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(path);
  }
  std::ranges::sort(files);
  return files;
}

std::optional<std::string> demo_model() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  constexpr const char* kName = "redlite-tales-32M.gguf";
  fs::path folder = program.parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path()) {
    for (const char* where : {"models", "share/redlite/models"}) {
      const fs::path path = folder / where / kName;
      if (fs::is_regular_file(path, error)) return path;
    }
  }
  return std::nullopt;
}

std::string choose_model() {
  constexpr uint64_t kOther = uint64_t{1} << 30;  // the program, its states and buffers
  const uint64_t available = available_memory();
  std::string fits, runs, refused;
  uint64_t largest = 0, smallest = UINT64_MAX;
  for (const std::string& path : model_files(user_file("models"))) {
    try {
      const model::Model model(path);
      const uint64_t bytes = model.dense_bytes() + model.expert_bytes();
      const uint64_t least = model.dense_bytes() + experts::ExpertCache::minimum_bytes(model);
      if (bytes + kOther <= available) {
        if (bytes > largest) largest = bytes, fits = path;
      } else if (least + kOther <= available && bytes < smallest) {
        smallest = bytes, runs = path;
      } else if (least + kOther > available) {
        refused = fmt::format("{}: needs more memory than is free", path);
      }
    } catch (const Error& e) {
      refused = e.what();
    }
  }
  if (!fits.empty()) return fits;
  if (!runs.empty()) return runs;
  if (const auto demo = demo_model()) return *demo;
  if (!refused.empty()) fail("no model in {} can be run here ({})", models_folder(), refused);
  fail("no model named, and none in {}: give a GGUF file, or put one there", models_folder());
}

}  // namespace redlite::cli
