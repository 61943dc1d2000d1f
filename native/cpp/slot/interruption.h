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

// The calling thread works for `call` until the end. If it is `shielded`, only code that is called through
// call_interruptible() is interrupted.
void begin_interruptible(uint64_t call, bool shielded);
void end_interruptible(uint64_t call) noexcept;

// call_interruptible(function, *arguments) -> its result
//
// Calls a model's code, which may be interrupted if this thread works for a call that can be. What serves the
// model is never interrupted itself. Raises CallInterrupted, also if that was asked for before. To be called
// `guarded`.
PyObject* call_interruptible(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

// Raises CallInterrupted at the next bytecode of the thread that works for the call. Not while that
// imports: half a module would stay behind, and some (numpy) cannot be imported a second time. Nothing
// if the call is over.
std::optional<Interpreter::Interruption> interrupt_call(uint64_t call);

}  // namespace interpool
