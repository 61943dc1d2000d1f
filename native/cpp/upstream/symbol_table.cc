#include "symbol_table.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <interpool/errors.h>
#include "../elf/elf_image.h"
#include "torch_words.h"

namespace interpool {
namespace {

// As C++ writes it; what is no C++ name stays as it is.
std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

// Of "ns::Class::function(arguments)", all before the arguments.
std::string_view without_arguments(std::string_view signature) {
  return signature.substr(0, signature.find('('));
}

// What `library` defines under the row's name, with other arguments.
std::string other_signatures(void* library, const SymbolRow& row) {
  const std::string wanted = demangled(row.mangled);
  const std::string_view name = without_arguments(wanted);
  const std::string_view last = name.substr(name.rfind(':') + 1);
  std::string found;
  ElfImage(library).each_definition([&](const char* defined, const ElfW(Sym) &) {
    if (std::string_view(defined).find(last) == std::string_view::npos) {
      return;  // demangling all of libtorch's would take a second
    }
    const std::string signature = demangled(defined);
    if (without_arguments(signature) == name && signature != wanted) {
      found += (found.empty() ? "" : ", ") + signature;
    }
  });
  return found;
}

[[noreturn]] void refuse(size_t rows, const std::vector<std::string>& problems) {
  std::string message = "this torch is not the one that interpool was built for (" TORCH_VERSION "): " +
                        std::to_string(problems.size()) + " of the " + std::to_string(rows) +
                        " private symbols that interpool relies on are missing or changed:";
  for (const std::string& problem : problems) {
    message += "\n  " + problem;
  }
  throw InterpreterStartError(message +
                              "\nInstall torch " TORCH_VERSION
                              ", or build interpool for this torch after native/cpp/upstream/torch_symbols.h "
                              "was brought up to date with it.");
}

// Of the patched rows, those that torch's libraries call through their offset tables.
std::set<std::string_view> called(std::span<const SymbolRow> rows, const LibraryOf& library_of) {
  std::set<std::string_view> patched;
  for (const SymbolRow& row : rows) {
    if (row.kind == SymbolKind::kPatched) {
      patched.insert(row.mangled);
    }
  }
  std::set<std::string_view> found;
  for (const char* name : {kC10, kTorchCpu}) {
    if (void* library = patched.empty() ? nullptr : library_of(name)) {
      ElfImage(library).each_got_entry([&](const char* entry, void**) {
        if (const auto known = patched.find(entry); known != patched.end()) {
          found.insert(*known);
        }
      });
    }
  }
  return found;
}

std::string for_what(const SymbolRow& row) {
  return demangled(row.mangled) + " (for: " + row.purpose + ")";
}

}  // namespace

FoundSymbols find_symbols(std::span<const SymbolRow> rows, const LibraryOf& library_of) {
  const std::set<std::string_view> in_tables = called(rows, library_of);
  FoundSymbols found;
  std::vector<std::string>& problems = found.problems;
  for (const SymbolRow& row : rows) {
    void* library = library_of(row.library);
    void* address = library == nullptr ? nullptr : dlsym(library, row.mangled);
    found.addresses.push_back(address);
    if (row.kind == SymbolKind::kOptional) {
      continue;
    }
    if (address != nullptr) {
      if (row.kind == SymbolKind::kPatched && !in_tables.contains(row.mangled)) {
        problems.push_back(std::string(row.library) + " does not call through its offset table " +
                           for_what(row));
      }
    } else if (library == nullptr) {
      problems.push_back(std::string(row.library) + ", which is not loaded: " + for_what(row));
    } else if (const std::string others = other_signatures(library, row); !others.empty()) {
      problems.push_back(std::string(row.library) + " has changed " + for_what(row) + "; it has " + others);
    } else {
      problems.push_back(std::string(row.library) + " lacks " + for_what(row));
    }
  }
  return found;
}

std::vector<void*> resolve_symbols(std::span<const SymbolRow> rows, const LibraryOf& library_of) {
  FoundSymbols found = find_symbols(rows, library_of);
  if (!found.problems.empty()) {
    refuse(rows.size(), found.problems);
  }
  return std::move(found.addresses);
}

}  // namespace interpool
