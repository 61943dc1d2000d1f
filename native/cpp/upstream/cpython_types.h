// What is CPython's own affair of its types, for code that has its headers.
#pragma once

#include <Python.h>

namespace interpool {

// A number that a type never has again once anything of it or of its bases has changed; 0: it has none, until
// an attribute of it is looked up.
inline unsigned version_of(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? type->tp_version_tag : 0;
}

}  // namespace interpool
