// The process's environment, changed so that whoever reads it meanwhile reads a whole one.
#pragma once

namespace interpool {

// The host program's Python, if it has one, changes the environment as private copies do from now on.
// Once, before the first slot starts; harmless when repeated.
void guard_environment();

}  // namespace interpool
