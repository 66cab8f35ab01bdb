#pragma once

namespace redlite {

/// Models are mapped, so a file that becomes shorter while it is read, or a disk that fails, arrives as
/// SIGBUS instead of as an error of read(). After this call the program then says so in one line, naming the
/// file and the offset where the system tells (Linux), and exits with status 1. For programs, once, at their
/// start.
void report_bus_errors();

}  // namespace redlite
