// Where a collective was called: part of its fingerprint and of every error message.
#pragma once

#include <cstdint>
#include <source_location>

namespace samara {

// As a default argument, `Site site = std::source_location::current()`, it names the caller.
// Bindings make it from what their language calls file and line.
struct Site {
  constexpr Site(const std::source_location& at)  // NOLINT(google-explicit-constructor)
      : file(at.file_name()), line(at.line()), column(at.column()) {}
  constexpr Site(const char* file_name, uint32_t line_number, uint32_t column_number)
      : file(file_name), line(line_number), column(column_number) {}

  const char* file;  // lives as long as the program
  uint32_t line, column;
};

}  // namespace samara
