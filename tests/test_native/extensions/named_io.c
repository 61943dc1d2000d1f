// An extension module of a package: `package._io`, called as one of Python's own.
#include <Python.h>

PyMODINIT_FUNC PyInit__io(void) {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "_io", "the package's", -1, NULL, NULL, NULL, NULL, NULL};
  return PyModule_Create(&definition);
}
