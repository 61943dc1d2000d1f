// Looking up a table of private symbols, all at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <interpool/export.h>

namespace interpool {

enum class SymbolKind : uint8_t {
  kRequired,
  kPatched,   // required, and libtorch's own calls of it go through its offset table, to be patched
  kOptional,  // not in every build of torch
};

struct SymbolRow {
  const char* library;  // SONAME
  SymbolKind kind;
  const char* mangled;
  const char* purpose;  // what does not work without it
};

// A loaded library by its SONAME, as a dlopen handle, or null.
using LibraryOf = std::function<void*(const char* soname)>;

struct FoundSymbols {
  std::vector<void*> addresses;       // in the rows' order; null for those that are not there
  std::vector<std::string> problems;  // every row that is missing and not optional, was given another
                                      // signature, or is to be patched and not called
};

INTERPOOL_PUBLIC FoundSymbols find_symbols(std::span<const SymbolRow> rows, const LibraryOf& library_of);

// Their addresses. Throws InterpreterStartError, which lists all problems and says what to do.
INTERPOOL_PUBLIC std::vector<void*> resolve_symbols(std::span<const SymbolRow> rows,
                                                    const LibraryOf& library_of);

}  // namespace interpool
