#include "torch_python.h"

#include <c10/core/impl/PyInterpreter.h>
#include <dlfcn.h>

#include <atomic>

#include <interpool/errors.h>
#include "../interpose/interpreters.h"

namespace interpool {
namespace {

// The head of libtorch_python's THPVariable (torch/csrc/autograd/python_variable.h).
struct TensorObject {
  PyObject_HEAD at::Tensor tensor;
};

using Wrap = PyObject* (*)(const at::TensorBase&);

struct TorchPython {
  Wrap wrap = nullptr;
  PyObject** tensor_class = nullptr;
  PyObject** parameter_class = nullptr;
};

// Written once, by adopt_torch_python.
std::atomic<const TorchPython*> library{nullptr};

template <typename T>
T symbol(void* handle, const char* name, const std::string& path) {
  void* found = dlsym(handle, name);
  if (found == nullptr) {
    throw InterpreterStartError(path + " does not define " + name +
                                "; interpool was built for another version of torch.");
  }
  return reinterpret_cast<T>(found);
}

}  // namespace

void adopt_torch_python(int interpreter, const std::string& path) {
  if (library.load() != nullptr) {
    return;
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) {
    throw InterpreterStartError(path + " is not loaded: " + dlerror());
  }
  auto own = symbol<c10::impl::PyInterpreter* (*)()>(handle, "_Z16getPyInterpreterv", path);
  auto* found = new TorchPython;
  found->wrap = symbol<Wrap>(handle, "_Z16THPVariable_WrapRKN2at10TensorBaseE", path);
  found->tensor_class = symbol<PyObject**>(handle, "THPVariableClass", path);
  found->parameter_class = symbol<PyObject**>(handle, "ParameterClass", path);
  adopt_torch(interpreter, own(), handle);
  library.store(found);
}

void require_torch() {
  checked(PyImport_ImportModule("torch"));
}

bool is_tensor(PyObject* object) {
  const TorchPython* torch = library.load();
  if (torch == nullptr || *torch->tensor_class == nullptr) {
    return false;
  }
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type == *torch->tensor_class || type == *torch->parameter_class) {
    return true;
  }
  if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(*torch->tensor_class)) != 0) {
    throw ConversionError(std::string("a ") + Py_TYPE(object)->tp_name +
                          " cannot cross between interpreters: only torch.Tensor itself and "
                          "nn.Parameter can. Convert it first, for instance with "
                          ".as_subclass(torch.Tensor).");
  }
  return false;
}

bool is_parameter(PyObject* object) {
  const TorchPython* torch = library.load();
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == *torch->parameter_class;
}

const at::Tensor& tensor_of(PyObject* object) {
  return reinterpret_cast<TensorObject*>(object)->tensor;
}

Ref wrap_tensor(const at::Tensor& tensor) {
  require_torch();
  return checked(library.load()->wrap(tensor));
}

Ref wrap_parameter(const at::Tensor& tensor) {
  const Ref plain = wrap_tensor(tensor);
  return checked(PyObject_CallFunction(*library.load()->parameter_class, "OO", plain.get(),
                                       tensor.requires_grad() ? Py_True : Py_False));
}

}  // namespace interpool
