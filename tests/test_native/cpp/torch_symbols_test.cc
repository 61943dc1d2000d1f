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

// What the error says, by lines: first how many, last what to do, and one line for each row between.
std::vector<std::string> problems(std::span<const SymbolRow> rows, const LibraryOf& library_of) {
  try {
    resolve_symbols(rows, library_of);
  } catch (const InterpreterStartError& error) {
    std::vector<std::string> lines;
    std::istringstream text(error.what());
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    EXPECT_NE(lines.front().find(" " + std::to_string(lines.size() - 2) + " of the " +
                                 std::to_string(rows.size()) + " private symbols"),
              std::string::npos)
        << error.what();
    EXPECT_EQ(lines.back().find("Install torch "), 0U) << error.what();
    return {lines.begin() + 1, lines.end() - 1};
  }
  return {};
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

TEST(TorchSymbols, ThatALibraryLacksAreListedAtOnce) {
  const auto rows = torch_symbol_rows();
  const auto said = problems(rows, other_torch);
  const auto optional = std::count_if(rows.begin(), rows.end(),
                                      [](const SymbolRow& row) { return row.kind == SymbolKind::kOptional; });
  // It has one of them as it should be.
  EXPECT_EQ(said.size(), rows.size() - static_cast<size_t>(optional) - 1);
  EXPECT_TRUE(any(said, "libtorch_cpu.so lacks torch::jit::setPrintHandler(void (*)(std::"));
  EXPECT_TRUE(any(said, "libc10.so lacks c10::impl::PyInterpreterHooksRegistry[abi:cxx11]()"));
  EXPECT_TRUE(any(said, "(for: each model's default dtype)"));
  EXPECT_FALSE(any(said, "set_num_interop_threads"));
}

TEST(TorchSymbols, WithAnotherSignatureAreShownWithIt) {
  const auto said = problems(torch_symbol_rows(), other_torch);
  EXPECT_TRUE(any(said,
                  "libtorch_cpu.so has changed at::set_num_threads(int) (for: each model's number of "
                  "threads); it has at::set_num_threads(long, bool)"));
}

TEST(TorchSymbols, ThatLibtorchNoLongerCallsCannotBePatched) {
  const auto said = problems(torch_symbol_rows(), other_torch);
  EXPECT_TRUE(any(said, "libc10.so does not call through its offset table c10::get_default_dtype()"));
}

TEST(TorchSymbols, OfALibraryThatIsNotLoadedAreMissing) {
  const SymbolRow row{kTorchCpu, SymbolKind::kRequired, mangled::set_num_threads, "a test"};
  const auto said = problems({&row, 1}, [](const char*) -> void* { return nullptr; });
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0], "  libtorch_cpu.so, which is not loaded: at::set_num_threads(int) (for: a test)");
}

TEST(TorchSymbols, OfLibtorchPythonAreListedAtOnceToo) {
  try {
    torch_python_symbols(other_torch(nullptr));
    FAIL() << "it has them";
  } catch (const InterpreterStartError& error) {
    for (const char* name : {"getPyInterpreter()", "THPVariable_Wrap(at::TensorBase const&)",
                             "THPVariableClass", "ParameterClass"}) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
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
