// How many threads an interpreter has at work. They are those that have entered it, and those that its models
// started, which work for it until they end.
//
// Any thread, with or without a GIL. A thread that libraries of the process start, which are no private
// copies (OpenMP's, autograd's), works within a call of one that is counted.
#pragma once

#include "interpreters.h"

namespace interpool {

INTERPOOL_API void begin_work(InterpreterId id) noexcept;
INTERPOOL_API void end_work(InterpreterId id) noexcept;

// False: none is. A thread that begins later sees what the caller has written before; the caller sees what
// the threads did that have ended.
INTERPOOL_API bool is_at_work(InterpreterId id) noexcept;

// Whether Python's threads that the calling thread starts from now on get working directories of their own.
INTERPOOL_API void start_threads_apart(bool apart);

}  // namespace interpool
