// Which interpreter's private copy a piece of code lies in.
#pragma once

#include "interpreters.h"

namespace interpool {

// The interpreter whose copy of a library holds that address; kNone for any other library's. Any
// thread; takes about a microsecond.
InterpreterId owner_of_code(const void* address) noexcept;

}  // namespace interpool
