// What loading libraries and importing modules in here asks of the process.
#pragma once

#include "python.h"

namespace interpool {

// Functions of `_interpool`, up to an empty entry.
PyMethodDef* library_functions();

// Whether Python has said that it left for later what registers kernels with torch. Any thread.
bool registers_late();

}  // namespace interpool
