// A user's extension as users write them: operators in a TORCH_LIBRARY block, a
// custom class, a Python module, and state of its own that must not be shared.
#define PY_SSIZE_T_CLEAN
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <Python.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cstdint>

namespace {

at::Tensor scale(const at::Tensor& x, double factor) {
  return x * factor;
}

at::Tensor scale_meta(const at::Tensor& x, double) {
  return at::empty_like(x);
}

// Of every backend, and differentiated through what it calls.
at::Tensor composite(const at::Tensor& x) {
  return x + x.sum();
}

struct Counter : torch::CustomClassHolder {
  explicit Counter(int64_t start) : value(start) {}
  int64_t add(int64_t by) { return value += by; }
  int64_t value;
};

// One per copy of the library only where STB_GNU_UNIQUE does not merge them.
template <typename T>
struct Holder {
  static inline PyObject* object = nullptr;
  static int64_t next() {
    static int64_t calls = 0;
    return ++calls;
  }
};

PyObject* remember(PyObject*, PyObject* object) {
  Py_XSETREF(Holder<int>::object, Py_NewRef(object));
  Py_RETURN_NONE;
}

PyObject* recall(PyObject*, PyObject*) {
  return Py_NewRef(Holder<int>::object != nullptr ? Holder<int>::object : Py_None);
}

PyObject* calls(PyObject*, PyObject*) {
  return PyLong_FromLongLong(Holder<int>::next());
}

PyMethodDef functions[] = {
    {"remember", remember, METH_O, nullptr},
    {"recall", recall, METH_NOARGS, nullptr},
    {"calls", calls, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "scaled_extension", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

TORCH_LIBRARY(interpool_scaled, library) {
  library.def("scale(Tensor x, float factor) -> Tensor");
  library.def("composite", composite);
  library.class_<Counter>("Counter").def(torch::init<int64_t>()).def("add", &Counter::add);
}

TORCH_LIBRARY_IMPL(interpool_scaled, CPU, library) {
  library.impl("scale", scale);
}

TORCH_LIBRARY_IMPL(interpool_scaled, Meta, library) {
  library.impl("scale", scale_meta);
}

PyMODINIT_FUNC PyInit_scaled_extension() {
  return PyModule_Create(&definition);
}
