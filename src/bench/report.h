#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/measure.h"
#include "machine/describe.h"
#include "machine/disk.h"
#include "model/model.h"

namespace redlite::bench {

/// How a runner was set up, and what the machine could do then.
struct Setting {
  std::string backend;                ///< "cpu"
  std::string kernels;                ///< CPU: instruction set
  int threads = 0;                    ///< CPU
  std::string device;                 ///< GPU: its name; else empty
  std::string residency;              ///< GPU: where the experts are, "device"
  std::optional<uint64_t> cache_mib;  ///< nullopt: every expert is resident
  std::string io;                     ///< as the cache says it: "mapped", "direct reads by io_uring"
  bool prefetch = true;
  std::string kv;  ///< "f32"
  int batch = 0;
  double first_token_seconds = 0;          ///< from opening the file to the logits of a first token
  uint64_t peak_memory_bytes = 0;          ///< of the host, since then
  uint64_t device_memory_bytes = 0;        ///< GPU
  double memory_bandwidth = 0;             ///< bytes a second: the device's, or with as many threads
  std::optional<machine::DiskSpeed> disk;  ///< of random reads as large as the cache's
  size_t disk_block = 0;                   ///< bytes of such a read
};

/// What all measurements of a run have in common: model, program and machine.
nlohmann::ordered_json describe_run(const model::Model& model, const machine::Machine& machine);

/// A measurement, for programs: the test, its rates, what limits them, the setting; `rival` may be null.
nlohmann::ordered_json describe(const Measurement& measurement, const Setting& setting, const Rival* rival);

/// The same for people: two lines about the run (with a setting of it), the table's head, a row of it.
std::string heading(const nlohmann::ordered_json& run, const Setting& setting);
std::string table_head(bool rival);
std::string table_row(const nlohmann::ordered_json& measurement);

}  // namespace redlite::bench
