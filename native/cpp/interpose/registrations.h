// What torch's Python registers with the process. An interpreter that has imported all of torch writes it
// down. It is repeated in a process in which no interpreter has.
//
// Afterwards the process's dispatcher has an entry for all of it, as if a full import had been. Operators are
// defined, and the first call of a deferred kernel has it registered (`Route::register_deferred`).
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
