// A handler of SIGCHLD that counts, as an event loop's in C.
#include <Python.h>
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t heard = 0;

static void count(int number) { ++heard; }

static PyObject* install(PyObject* self, PyObject* nothing) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = count;
  if (sigaction(SIGCHLD, &action, NULL) != 0) {
    return PyErr_SetFromErrno(PyExc_OSError);
  }
  Py_RETURN_NONE;
}

static PyObject* removed(PyObject* self, PyObject* nothing) {
  const int was_ours = signal(SIGCHLD, SIG_DFL) == count;
  return PyBool_FromLong(was_ours);
}

static PyObject* so_far(PyObject* self, PyObject* nothing) { return PyLong_FromLong(heard); }

static PyMethodDef functions[] = {{"install", install, METH_NOARGS, NULL},
                                  {"removed", removed, METH_NOARGS, NULL},
                                  {"so_far", so_far, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit_child_signals(void) {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "child_signals", NULL, -1, functions, NULL, NULL, NULL, NULL};
  return PyModule_Create(&definition);
}
