// Where this interpreter's threads are in its Python code. Needs its GIL.
#pragma once

#include <string>
#include <vector>

#include <interpool/value.h>
#include "python.h"

namespace interpool {

// "function (file:line)", innermost first; empty for a thread in native code that no
// Python code called.
std::vector<std::string> stack_of(PyThreadState* thread);

// Is the thread importing a module?
bool is_importing(PyThreadState* thread);

// For Interpreter::stacks().
Value thread_stacks();

}  // namespace interpool
