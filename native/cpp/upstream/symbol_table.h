// Looking up a table of private symbols, all at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
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

// Their addresses, in order; null for optional ones that are not there. Throws
// InterpreterStartError, which lists every other one that is missing, was given another
// signature, or is to be patched and not called; and says what to do.
INTERPOOL_PUBLIC std::vector<void*> resolve_symbols(std::span<const SymbolRow> rows,
                                                    const LibraryOf& library_of);

}  // namespace interpool
