// The table of torch's private symbols: all of it is in this torch, and what another one lacks is
// said at once.
#include "upstream/torch_symbols.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <interpool/errors.h>

namespace interpool::testing {
namespace {

void* this_torch(const char* soname) {
  return ::dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
}

void* other_torch(const char* /*soname*/) {
  static void* const library = ::dlopen(OTHER_TORCH, RTLD_NOW | RTLD_LOCAL);
  return library;
}

bool any(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != line.npos; });
}

TEST(TorchSymbols, AreAllInThisTorch) {
  const auto rows = torch_symbol_rows();
  const auto addresses = resolve_symbols(rows, this_torch);
  ASSERT_EQ(addresses.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(addresses[i] != nullptr || rows[i].kind == SymbolKind::kOptional) << rows[i].mangled;
  }
}

TEST(TorchSymbols, OfBothTablesAreReportedTogether) {
  const auto rows = torch_symbol_rows();
  const auto problems = torch_symbol_problems(other_torch);
  EXPECT_EQ(problems.size(), find_symbols(rows, other_torch).problems.size() + 4);
  EXPECT_TRUE(any(problems, "libtorch_cpu.so lacks torch::jit::setPrintHandler(void (*)(std::"));
  EXPECT_TRUE(any(problems, "libtorch_python.so lacks THPVariableClass (for: tensors on their way out)"));

  // This process has libtorch, and no libtorch_python.
  static std::vector<std::string> reported;
  const size_t count = interpool_torch_symbol_problems([](const char* each) { reported.emplace_back(each); });
  EXPECT_EQ(count, rows.size() + 4);
  ASSERT_EQ(reported.size(), 4U);
  EXPECT_EQ(reported[2],
            "libtorch_python.so, which is not loaded: THPVariableClass (for: tensors on their way out)");
}

}  // namespace
}  // namespace interpool::testing
