// Functions of ours that Python calls, through C code that no C++ exception may cross.
#pragma once

#include <exception>

#include "python.h"

namespace interpool {

// What is being handled as a Python exception: one that is pending stays as it is. Call in a catch block,
// with this interpreter's GIL.
void raise_in_python() noexcept;

template <auto function>
struct Guarded;

template <typename... Arguments, PyObject* (*function)(Arguments...)>
struct Guarded<function> {
  static PyObject* call(Arguments... arguments) {
    try {
      return function(arguments...);
    } catch (const std::exception&) {
      raise_in_python();
      return nullptr;
    }
  }
};

// `function` for a table of functions or a slot of a type: what it throws is raised in Python.
template <auto function>
inline constexpr auto guarded = &Guarded<function>::call;

}  // namespace interpool
