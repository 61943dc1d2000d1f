#include "function_watch.h"

#include <memory>
#include <new>
#include <vector>

namespace interpool {
namespace {

constexpr const char* kFunctionWatch = "interpool.function_watch";

struct Function {
  Ref function;
  Ref code;
  Ref defaults;
  Ref keyword_defaults;
};

using FunctionWatch = std::vector<Function>;

Function as_it_is(PyObject* function) {
  return {borrow(function), borrow(PyFunction_GET_CODE(function)), borrow(PyFunction_GET_DEFAULTS(function)),
          borrow(PyFunction_GET_KW_DEFAULTS(function))};
}

void drop_watch_of_functions(PyObject* capsule) {
  delete static_cast<FunctionWatch*>(PyCapsule_GetPointer(capsule, kFunctionWatch));
}

int add_function(PyObject* value, void* watch) noexcept {
  if (PyFunction_Check(value) == 0) {
    return 0;
  }
  try {
    static_cast<FunctionWatch*>(watch)->push_back(as_it_is(value));
    return 0;
  } catch (...) {
    return 1;
  }
}

// Static and class methods and properties refer to the functions that they are made of.
bool wraps_functions(PyObject* value) {
  return Py_TYPE(value) == &PyStaticMethod_Type || Py_TYPE(value) == &PyClassMethod_Type ||
         Py_TYPE(value) == &PyProperty_Type;
}

}  // namespace

PyObject* watch_functions(PyObject*, PyObject* args) {
  PyObject* namespaces = nullptr;
  if (PyArg_ParseTuple(args, "O!", &PyList_Type, &namespaces) == 0) {
    return nullptr;
  }
  auto watch = std::make_unique<FunctionWatch>();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(namespaces); ++i) {
    PyObject* const space = PyList_GET_ITEM(namespaces, i);
    PyObject* const dict = PyType_Check(space) != 0 ? reinterpret_cast<PyTypeObject*>(space)->tp_dict : space;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Check(dict) != 0 && PyDict_Next(dict, &position, &name, &value) != 0) {
      const int failed = wraps_functions(value)
                             ? Py_TYPE(value)->tp_traverse(value, add_function, watch.get())
                             : add_function(value, watch.get());
      if (failed != 0) {
        throw std::bad_alloc();
      }
    }
  }
  Ref capsule = made(PyCapsule_New(watch.get(), kFunctionWatch, drop_watch_of_functions));
  static_cast<void>(watch.release());
  return capsule.release();
}

PyObject* exchanged_functions(PyObject*, PyObject* capsule) {
  auto* const watch = static_cast<FunctionWatch*>(PyCapsule_GetPointer(capsule, kFunctionWatch));
  if (watch == nullptr) {
    return nullptr;
  }
  Ref exchanged = made(PyList_New(0));
  for (Function& each : *watch) {
    PyObject* const function = each.function.get();
    if (PyFunction_GET_CODE(function) != each.code.get() ||
        PyFunction_GET_DEFAULTS(function) != each.defaults.get() ||
        PyFunction_GET_KW_DEFAULTS(function) != each.keyword_defaults.get()) {
      done(PyList_Append(exchanged.get(), function));
      each = as_it_is(function);
    }
  }
  return exchanged.release();
}

}  // namespace interpool
