// Operators registered as before TORCH_LIBRARY: by torch::RegisterOperators, which some
// packages still use (torchvision's image library is one), in a Python module of their own.
#define PY_SSIZE_T_CLEAN
#include <ATen/TensorOperators.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/ops/add.h>
#include <Python.h>

#include <cstdint>

namespace {

int64_t calls = 0;  // in each copy

at::Tensor shifted(const at::Tensor& x) {
  ++calls;
  return x + 1;
}

int64_t called() {
  return calls;
}

const auto registry = torch::RegisterOperators()
                          .op("interpool_legacy::shifted(Tensor x) -> Tensor", &shifted)
                          .op("interpool_legacy::called", &called);

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "legacy_extension", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_legacy_extension() {
  return PyModule_Create(&definition);
}
