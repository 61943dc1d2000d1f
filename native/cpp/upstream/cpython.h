// What is CPython's own affair and code depends on, besides its API. The layouts are those
// of 3.11 to 3.15, with a GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace interpool {

// The head of every object: a reference count and the type. Read without any GIL: an object's type pointer
// does not change while a reference to it is owned. The exception is a change between heap types of one
// interpreter, which share their owner. layout_checks.cc holds it against Python.h.
struct ObjectHead {
  intptr_t refcount;
  const ObjectHead* type;
};

// Names of CPython's C API, public and private.
inline bool is_python_name(std::string_view symbol) {
  return symbol.starts_with("Py") || symbol.starts_with("_Py");
}

// What the name of an extension module's init function begins with.
inline constexpr const char* kInitFunction = "PyInit_";

// Libraries that look symbols up in Python code's name: ctypes, cffi, and LLVM for what numba compiles.
inline bool is_foreign_function_module(std::string_view file) {
  return file.starts_with("_ctypes.") || file.starts_with("_cffi_backend.") ||
         file.starts_with("libllvmlite.");
}

// threading's table of threads by their ident, a thread's name, and the class of those that threading did not
// start. native/upstream/cpython_private.py checks them.
inline constexpr const char* kThreadsByIdent = "_active";
inline constexpr const char* kThreadName = "_name";
inline constexpr const char* kForeignThread = "_DummyThread";

// The function of importlib's in which it imports every module that is not there yet, and its file.
inline constexpr const char* kImportFunction = "_find_and_load";
inline constexpr const char* kImportFile = "<frozen importlib._bootstrap>";

}  // namespace interpool
