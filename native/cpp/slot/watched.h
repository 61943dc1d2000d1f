// Whether Python's attributes still are what they were: what models replace is left to the code that they
// replaced it for. Needs this interpreter's GIL; to be called `guarded`.
#pragma once

#include "python.h"

namespace interpool {

// watched(*pairs: tuple[object, str]) -> Callable[[], bool]
//
// Of modules, classes or other objects and names of theirs, from now on. A class's attributes are compared
// only after something of the class or its bases has changed.
PyObject* watched(PyObject* module, PyObject* pairs);

}  // namespace interpool
