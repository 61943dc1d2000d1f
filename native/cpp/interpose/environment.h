// The process's environment, changed so that a thread which reads it meanwhile reads a whole one.
#pragma once

#include "interpreters.h"

namespace interpool {

// From now on the host program, and its Python if it has one, change the environment as private copies do.
// The program's other libraries do not. Once, when this library is loaded; harmless when repeated.
void guard_environment();

// No change moves `environ` from now on, but for those that these other libraries make. To be called before
// the first interpreter runs, with the host's GIL if it has one. Else CPython's posix_spawn could take the
// array that it began with for its own, and free it.
INTERPOOL_API void own_environment();

}  // namespace interpool
