// `_interpool`: the builtin module through which Python code inside a slot reaches the
// process around it.
#pragma once

#include "../seam/interpreter.h"
#include "python.h"

namespace interpool {

// Makes the module importable; before Py_Initialize. `options` outlives Python.
void add_builtin_module(const StartOptions& options);

// As given above.
const StartOptions& start_options();

// Functions of the module, by subject, each list up to an empty entry.
PyMethodDef* archive_functions();
PyMethodDef* claim_functions();
PyMethodDef* library_functions();

}  // namespace interpool
