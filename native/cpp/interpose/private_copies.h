// Which interpreter's private copy a piece of code lies in, and what it is a copy of.
#pragma once

#include <string>

#include "interpreters.h"

namespace interpool {

// The interpreter whose copy of a library holds that address; kNone for any other library's. Any
// thread; takes about a microsecond.
InterpreterId owner_of_code(const void* address) noexcept;

// The file name of the original that this loaded library is a private copy of; of any other library, "".
// A copy's own file may be nameless: it is in memory if the cache cannot be written.
INTERPOOL_API std::string original_name(void* library);

}  // namespace interpool
