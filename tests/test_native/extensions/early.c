// An extension that calls Python while the dynamic linker loads it, as static objects of C++ do
// (static const py::module_ math = py::module_::import("math");). It imports another extension then.
#include <Python.h>

static PyObject* decimal = NULL;

__attribute__((constructor)) static void begin(void) {
  decimal = PyImport_ImportModule("_decimal");
}

PyMODINIT_FUNC PyInit_early(void) {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "early", NULL, -1, NULL, NULL, NULL, NULL, NULL};
  PyObject* const module = PyModule_Create(&definition);
  if (module == NULL || PyModule_AddObjectRef(module, "decimal", decimal) != 0) {
    return NULL;
  }
  return module;
}
