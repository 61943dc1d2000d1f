// Which functions have other code, or other defaults, than they had. It needs this interpreter's GIL.
#pragma once

#include "python.h"

namespace interpool {

// watch_functions(namespaces: list[dict | type]) -> watch
//
// The functions in them, with their code and the defaults of their parameters. Also those inside class
// methods, static methods and properties.
PyObject* watch_functions(PyObject* module, PyObject* args);

// exchanged_functions(watch) -> list[function]
//
// Those whose code or defaults are others than when this was asked last.
PyObject* exchanged_functions(PyObject* module, PyObject* watch);

}  // namespace interpool
