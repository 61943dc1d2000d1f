// Archives, as they are mapped into this interpreter's memory.
#pragma once

#include "python.h"

namespace interpool {

// Functions of `_interpool`, up to an empty entry.
PyMethodDef* archive_functions();

}  // namespace interpool
