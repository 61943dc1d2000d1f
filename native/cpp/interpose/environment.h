// The process's environment, changed so that a thread which reads it meanwhile reads a whole one.
#pragma once

#include "interpreters.h"

namespace interpool {

// The host program, and its Python if it has one, change the environment as private copies do from now on;
// not so the program's other libraries. Once, when this library is loaded; harmless when repeated.
void guard_environment();

// No change moves `environ` from now on, but for those that these other libraries make. Before the first
// interpreter runs, with the host's GIL where it has one: CPython's posix_spawn would take the array that it
// began with for its own, and free it.
INTERPOOL_API void own_environment();

}  // namespace interpool
