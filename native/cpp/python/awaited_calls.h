// Calls of movable objects that an event loop in the host's Python awaits.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <utility>

#include <interpool/value.h>

namespace interpool {

// How this module turns Python's objects into values and back; with the host's GIL.
struct Conversion {
  std::pair<std::vector<Value>, Keywords> (*read)(const pybind11::iterable& args,
                                                  const pybind11::dict& kwargs);
  pybind11::object (*write)(const Value& value);
};

// Adds CallInbox and AwaitedCall to `module`; see _native.pyi.
void add_awaited_calls(pybind11::module_& module, Conversion conversion);

}  // namespace interpool
