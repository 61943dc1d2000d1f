// Operators on torch's stable ABI, as users write them to build once for several torches.
// With Python's stable ABI in PYTHON_MODULE, as extensions that are imported; without, as
// libraries of operators alone.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <atomic>
#include <cstdint>

#ifdef PYTHON_MODULE
#define NAMESPACE interpool_stable_module
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#elif !defined(NAMESPACE)
#define NAMESPACE interpool_stable
#endif

namespace {

std::atomic<int64_t> calls{0};

torch::stable::Tensor shifted(const torch::stable::Tensor& x) {
  ++calls;
  torch::stable::Tensor made = torch::stable::clone(x);
  auto* data = static_cast<float*>(made.data_ptr());
  for (int64_t i = 0; i < made.numel(); ++i) {
    data[i] += 1;
  }
  return made;
}

int64_t called() {
  return calls;
}

}  // namespace

// torch's macros paste their argument as it stands.
#define REGISTER(name, library) STABLE_TORCH_LIBRARY(name, library)
#define REGISTER_IMPL(name, key, library) STABLE_TORCH_LIBRARY_IMPL(name, key, library)

REGISTER(NAMESPACE, library) {
  library.def("shifted(Tensor x) -> Tensor");
  library.def("called() -> int");
}

REGISTER_IMPL(NAMESPACE, CPU, library) {
  library.impl("shifted", TORCH_BOX(&shifted));
}

REGISTER_IMPL(NAMESPACE, CompositeExplicitAutograd, library) {
  library.impl("called", TORCH_BOX(&called));
}

#ifdef PYTHON_MODULE
PyMODINIT_FUNC PyInit_stable_extension() {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "stable_extension", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}
#endif
