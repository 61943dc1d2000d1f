// Which names of which dictionaries are bound to something else than they were. It is cheap to ask again and
// again, as a dictionary has another version whenever it has changed (dict_version.h). All of it needs this
// interpreter's GIL, and is to be called `guarded`.
#pragma once

#include "python.h"

namespace interpool {

// watch_dicts(dicts: list[dict | type], values: bool) -> watch
//
// With `values`, the callables in them, and what they are bound to, are kept.
PyObject* watch_dicts(PyObject* module, PyObject* args);

// changed_dicts(watch, peeks: bool = False) -> list[tuple[int, list[tuple[str, object]]]]
//
// Those that have changed since this was asked last, by their place in the list. With each, the kept names
// that are bound to something else, or to nothing, and what they were bound to: each one once. If it only
// peeks, the next call gives the same again.
PyObject* changed_dicts(PyObject* module, PyObject* args);

}  // namespace interpool
