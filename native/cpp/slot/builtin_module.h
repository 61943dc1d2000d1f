// `_interpool`: the builtin module through which Python code inside a slot reaches the
// process around it.
#pragma once

#include <optional>
#include <string>

#include "../seam/interpreter.h"
#include "python.h"

namespace interpool {

// Makes the module importable; before Py_Initialize. `options` outlives Python.
void add_builtin_module(const StartOptions& options);

// Whether Python has said that it left for later what registers kernels with torch. Any thread.
bool registers_late();

// Has Python code in here asked for that (`_interpool.retire_interpreter`)? Any thread.
bool wants_to_retire();

// For whom Python code in here has claimed it (`_interpool.claim_interpreter`). Any thread.
std::optional<std::string> take_claim();

}  // namespace interpool
