// What torch's Python registers with the process, written down by an interpreter that has imported all of
// torch, and repeated in a process where nobody has.
//
// Afterwards the process's dispatcher has an entry for all of it, as if a full import had been: operators are
// defined, and the first call of a kernel of theirs has it registered (`Route::register_late`).
#pragma once

#include <string>

#include "interpreters.h"

namespace interpool {

// What that interpreter holds: definitions, kernels written in Python, opaque types. One in a line.
INTERPOOL_API std::string noted_registrations(InterpreterId id);

// Makes all of it that the process does not have. Throws c10::Error if the note is not of this build's
// or torch's making. Any thread, after the first interpreter has loaded libtorch_python.
INTERPOOL_API void repeat_registrations(const std::string& note);

}  // namespace interpool
