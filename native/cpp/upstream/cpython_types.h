// What is CPython's own affair of its types and modules, for code that has its headers.
#pragma once

#include <Python.h>

#include <cstdint>

namespace interpool {

// os.environ's class, and its attributes for encoded names and values; what json.loads decodes by, and the
// function that this asks. native/upstream/cpython_private.py checks them.
inline constexpr const char* kEnvironClass = "_Environ";
inline constexpr const char* kEnvironData = "_data";
inline constexpr const char* kJsonDecoder = "_default_decoder";
inline constexpr const char* kJsonScanner = "scan_once";

// A number that a type never has again once anything of it or of its bases has changed. 0: it has none, until
// an attribute of it is looked up. From 3.13 on no flag says whether it has one.
inline unsigned version_of(PyTypeObject* type) {
  return PY_VERSION_HEX >= 0x030D0000 || PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) != 0
             ? type->tp_version_tag
             : 0;
}

#if PY_VERSION_HEX < 0x030E0000
// Where the number is that a dictionary never has again once it has changed. Deprecated from CPython 3.12 on,
// and gone in 3.14: slot/dict_version.cc has a watcher of dictionaries say it.
inline const uint64_t* version_of_dict(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return &reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}
#endif

// Whether an object's tp_traverse may visit what it has no reference to. A suspended function in 3.14 does:
// the values on its stack that it took from its own variables are borrowed from these, and both are visited.
inline bool visits_borrowed(PyObject* object) {
  return PY_VERSION_HEX >= 0x030E0000 && (PyGen_CheckExact(object) != 0 || PyCoro_CheckExact(object) != 0 ||
                                          PyAsyncGen_CheckExact(object) != 0);
}

// Whether one of these runs at this moment, on another thread. Its stack then borrows from its callers, too.
inline bool runs_now(PyObject* object) {
  const char* const name = PyGen_CheckExact(object) != 0    ? "gi_running"
                           : PyCoro_CheckExact(object) != 0 ? "cr_running"
                                                            : "ag_running";
  PyObject* const running = PyObject_GetAttrString(object, name);
  PyErr_Clear();
  const bool known_not_to = running == Py_False;
  Py_XDECREF(running);
  return !known_not_to;
}

}  // namespace interpool
