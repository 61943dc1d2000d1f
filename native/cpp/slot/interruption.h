// Python code stopped from outside, for calls with a time limit. All of it needs this
// interpreter's GIL, which guards the table of calls under way.
#pragma once

#include "python.h"

#include <cstdint>
#include <optional>

#include "../seam/interpreter.h"

namespace interpool {

// The type CallInterrupted, borrowed; null with a Python error.
PyObject* call_interrupted();

// The calling thread works for `call` until the end.
void begin_interruptible(uint64_t call, bool shielded);
void end_interruptible(uint64_t call) noexcept;

// From now on the calling thread's call is interrupted as soon as that is asked for; or `shielded`, not
// before the shield goes. False if that was asked for under the shield that goes: the caller raises.
bool shield_call(bool shielded);

// Raises CallInterrupted at the next bytecode of the thread that works for the call. Not while that
// imports: half a module would stay behind, and some (numpy) cannot be imported a second time. Nothing
// if the call is over.
std::optional<Interpreter::Interruption> interrupt_call(uint64_t call);

}  // namespace interpool
