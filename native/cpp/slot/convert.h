// This interpreter's objects to and from plain values. Needs its GIL.
#pragma once

#include <interpool/value.h>
#include "python.h"

namespace interpool {

// None, bool, int, float, str, bytes, list, tuple, dict and torch.Tensor, nested
// up to 200 deep; subclasses of the containers cross as their base. Throws
// ConversionError that names the type and where in the value it stands.
Value value_of(PyObject* object);

// The reverse. An ObjectRef must be of this interpreter and of an open session: WrongInterpreterError,
// SessionClosedError.
Ref object_of(const Value& value, int interpreter);

}  // namespace interpool
