// A library for ctypes.PyDLL: no module of Python's, but it uses Python, and has state.
#include <Python.h>

static long total = 0;

PyObject* state_add(int by) {
  total += by;
  return PyLong_FromLong(total);
}
