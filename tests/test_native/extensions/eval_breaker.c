// Whether something asks this interpreter's bytecode to stop and look: an exception from another
// thread, a signal, a wish for the GIL. While it does, every loop and most calls take the slow way.
#define Py_BUILD_CORE_MODULE
#include <Python.h>
#include <internal/pycore_interp.h>

static PyObject* is_set(PyObject* self, PyObject* none) {
  (void)self, (void)none;
#if PY_VERSION_HEX < 0x030D0000
  return PyBool_FromLong(PyInterpreterState_Get()->ceval.eval_breaker._value != 0);
#else
  return PyBool_FromLong((PyThreadState_Get()->eval_breaker & 0xFF) != 0);  // above it: a version
#endif
}

static PyMethodDef functions[] = {{"is_set", is_set, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit_eval_breaker(void) {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "eval_breaker", NULL, -1, functions, NULL, NULL, NULL, NULL};
  return PyModule_Create(&definition);
}
