// A thread of the model's that computes with torch until the process ends, without the GIL.
#include <ATen/ATen.h>
#include <pybind11/pybind11.h>

#include <thread>

namespace {

void compute() {
  const at::Tensor x = at::ones({64, 64});
  for (;;) {
    x.mm(x);
  }
}

}  // namespace

PYBIND11_MODULE(busy_thread, module) {
  module.def("compute", &compute, pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("start", [] { std::thread(compute).detach(); });
}
