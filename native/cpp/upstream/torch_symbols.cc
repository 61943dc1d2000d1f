#include "torch_symbols.h"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace interpool {
namespace {

#define INTERPOOL_SYMBOL_ROW(name, library, kind, mangled, purpose, ...) \
  SymbolRow{library, SymbolKind::kind, mangled, purpose},
constexpr auto kRows = std::to_array<SymbolRow>({INTERPOOL_TORCH_SYMBOLS(INTERPOOL_SYMBOL_ROW)});
constexpr auto kPythonRows = std::to_array<SymbolRow>({INTERPOOL_TORCH_PYTHON_SYMBOLS(INTERPOOL_SYMBOL_ROW)});
#undef INTERPOOL_SYMBOL_ROW

// The handle stays good after the dlclose: libtorch is never unloaded.
void* loaded(const char* soname) {
  void* handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) {
    dlclose(handle);
  }
  return handle;
}

}  // namespace

TorchSymbols torch_symbols;

std::span<const SymbolRow> torch_symbol_rows() {
  return kRows;
}

#define INTERPOOL_SYMBOL_SET(name, library, kind, mangled, purpose, ...) \
  symbols.name = reinterpret_cast<decltype(symbols.name)>(*address++);

void resolve_torch_symbols() {
  const auto addresses = resolve_symbols(kRows, loaded);
  TorchSymbols& symbols = torch_symbols;
  auto address = addresses.begin();
  INTERPOOL_TORCH_SYMBOLS(INTERPOOL_SYMBOL_SET)
}

TorchPythonSymbols torch_python_symbols(void* library) {
  const auto addresses = resolve_symbols(kPythonRows, [library](const char*) { return library; });
  TorchPythonSymbols symbols;
  auto address = addresses.begin();
  INTERPOOL_TORCH_PYTHON_SYMBOLS(INTERPOOL_SYMBOL_SET)
  return symbols;
}

#undef INTERPOOL_SYMBOL_SET

std::vector<std::string> torch_symbol_problems(const LibraryOf& library_of) {
  std::vector<std::string> problems = find_symbols(kRows, library_of).problems;
  for (std::string& problem : find_symbols(kPythonRows, library_of).problems) {
    problems.push_back(std::move(problem));
  }
  return problems;
}

size_t interpool_torch_symbol_problems(void (*report)(const char* problem)) {
  for (const std::string& problem : torch_symbol_problems(loaded)) {
    report(problem.c_str());
  }
  return kRows.size() + kPythonRows.size();
}

}  // namespace interpool
