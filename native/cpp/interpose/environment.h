// The process's environment, changed so that whoever reads it meanwhile reads a whole one.
#pragma once

namespace interpool {

// The host program, and its Python if it has one, change the environment as private copies do from now on;
// not so the program's other libraries. Once, when this library is loaded; harmless when repeated.
void guard_environment();

}  // namespace interpool
