// What a reference to an interpreter's object refers to, looked up in that interpreter.
#pragma once

#include <string>

#include <interpool/errors.h>
#include <interpool/value.h>

namespace interpool {

[[noreturn]] inline void refuse_ended_session() {
  throw SessionClosedError(
      "the session of this object has ended, and its interpreter may serve another caller now; take "
      "values with to_value() before the session closes.");
}

// The object, borrowed: good as long as the GIL is not released. The calling thread holds the GIL of
// `interpreter`, under which a session's objects are released. Throws WrongInterpreterError,
// SessionClosedError.
inline void* object_in(const ObjectRef& reference, int interpreter) {
  if (reference.interpreter != interpreter) {
    throw WrongInterpreterError("an object of interpreter " + std::to_string(reference.interpreter) +
                                " was used in interpreter " + std::to_string(interpreter) +
                                "; take its value with to_value(), or make it in the session that uses it.");
  }
  if (!*reference.open) {
    refuse_ended_session();
  }
  return reference.object.get();
}

}  // namespace interpool
