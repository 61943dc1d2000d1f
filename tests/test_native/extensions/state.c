// A library for ctypes.PyDLL: it uses Python, and has state.
#include <Python.h>

static long total = 0;

PyObject* state_add(int by) {
  total += by;
  return PyLong_FromLong(total);
}

// For `import state`, where it is called state.so.
PyMODINIT_FUNC PyInit_state(void) {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "state", NULL, -1, NULL, NULL, NULL, NULL, NULL};
  return PyModule_Create(&definition);
}
