// std::source_location for clang 14, which has none with libstdc++: the presets of clang include it
// everywhere.
#pragma once
#include <version>
#if defined(__clang__) && !defined(__cpp_lib_source_location)
namespace std {
struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           unsigned line = __builtin_LINE(),
                                           unsigned column = __builtin_COLUMN()) {
    source_location at;
    at.file_ = file, at.line_ = line, at.column_ = column;
    return at;
  }
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return column_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0, column_ = 0;
};
}  // namespace std
#endif
