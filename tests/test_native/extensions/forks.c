// Handlers of pthread_atfork, and forks that are followed by nothing of Python.
#include <Python.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int prepared = 0;
static int in_child = 0;

static void prepare(void) { ++prepared; }
static void child(void) { ++in_child; }

static PyObject* register_handlers(PyObject* self, PyObject* nothing) {
  pthread_atfork(prepare, NULL, child);
  Py_RETURN_NONE;
}

// How often handlers ran: before forks so far, and in a child.
static PyObject* fork_once(PyObject* self, PyObject* nothing) {
  const pid_t pid = fork();
  if (pid == 0) {
    _exit(in_child);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return Py_BuildValue("(ii)", prepared, WEXITSTATUS(status));
}

static PyObject* so_far(PyObject* self, PyObject* nothing) { return PyLong_FromLong(prepared); }

static PyMethodDef functions[] = {{"register_handlers", register_handlers, METH_NOARGS, NULL},
                                  {"fork_once", fork_once, METH_NOARGS, NULL},
                                  {"so_far", so_far, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit_forks(void) {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "forks", NULL, -1, functions, NULL, NULL, NULL, NULL};
  return PyModule_Create(&definition);
}
