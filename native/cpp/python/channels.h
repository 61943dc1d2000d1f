// Channels, for an event loop in the host's Python.
#pragma once

#include <pybind11/pybind11.h>

namespace interpool {

// Adds Inbox and Channel to `module`; see _native.pyi.
void add_channels(pybind11::module_& module);

}  // namespace interpool
