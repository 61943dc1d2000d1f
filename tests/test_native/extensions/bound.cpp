// A user's extension as users write them with pybind11: functions of tensors, exceptions of
// its own, and state of its own in static and thread_local objects.
#include <ATen/TensorOperators.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace {

class OwnError : public std::exception {
 public:
  explicit OwnError(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

// A translator is registered for OwnError, and none for this one.
class QuietError : public OwnError {
 public:
  using OwnError::OwnError;
};

[[noreturn]] void raise_own(const std::string& message) {
  throw OwnError(message);
}

bool catches_own(const std::string& message) {
  try {
    throw QuietError(message);
  } catch (const OwnError& error) {
    return error.what() == message;
  }
}

at::Tensor scale(const at::Tensor& x, double factor) {
  const py::gil_scoped_release released;
  return x * factor;
}

std::vector<at::Tensor> halves(const at::Tensor& x) {
  return {x.slice(0, 0, x.size(0) / 2), x.slice(0, x.size(0) / 2, x.size(0))};
}

at::Tensor apply(const py::function& function, const at::Tensor& x) {
  return function(x).cast<at::Tensor>();
}

// On a thread that Python has not started.
at::Tensor apply_on_a_thread(const py::function& function, const at::Tensor& x) {
  at::Tensor result;
  std::exception_ptr failure;
  const py::gil_scoped_release released;
  std::thread([&] {
    // As C code has it: pybind11's own way tells more of the thread.
    const PyGILState_STATE state = PyGILState_Ensure();
    try {
      result = apply(function, x);
    } catch (...) {
      failure = std::current_exception();
    }
    PyGILState_Release(state);
  }).join();
  if (failure) {
    std::rethrow_exception(failure);
  }
  return result;
}

// Inline statics: one per process where STB_GNU_UNIQUE merges copies.
template <typename T>
int next() {
  static int calls = 0;
  return ++calls;
}

std::atomic<int> threads_ended{0};

struct Visits {
  int count = 0;
  ~Visits() { ++threads_ended; }
};
thread_local Visits visits;

void refuse(const at::Tensor&) {
  throw OwnError("refused below the dispatcher");
}

}  // namespace

TORCH_LIBRARY(interpool_bound, library) {
  library.def("refuse(Tensor x) -> ()", refuse);
}

PYBIND11_MODULE(bound_extension, module) {
  py::register_exception<OwnError>(module, "OwnError", PyExc_LookupError);
  module.def("raise_own", raise_own);
  module.def("catches_own", catches_own);
  module.def("scale", scale);
  module.def("halves", halves);
  module.def("apply", apply);
  module.def("apply_on_a_thread", apply_on_a_thread);
  module.def("count", next<OwnError>);
  module.def("visit", [] { return ++visits.count; });
  module.def("threads_ended", [] { return threads_ended.load(); });
}
