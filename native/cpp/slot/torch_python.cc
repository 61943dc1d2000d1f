#include "torch_python.h"

#include <dlfcn.h>

#include <atomic>

#include <interpool/errors.h>
#include "../interpose/interpreters.h"
#include "../upstream/torch_layouts.h"
#include "../upstream/torch_symbols.h"

namespace interpool {
namespace {

// Written once, by adopt_torch_python.
std::atomic<const TorchPythonSymbols*> library{nullptr};

// torch's symbols, once its classes are there; before, null.
const TorchPythonSymbols* classes() {
  const TorchPythonSymbols* torch = library.load();
  return torch != nullptr && *torch->tensor_class != nullptr ? torch : nullptr;
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
  const auto* found = new TorchPythonSymbols(torch_python_symbols(handle));
  adopt_torch(interpreter, found->own_interpreter(), handle);
  library.store(found);
}

void require_torch() {
  if (classes() == nullptr) {  // an import that finds the module takes longer than to wrap a tensor
    checked(PyImport_ImportModule("torch"));
  }
}

bool is_tensor(PyObject* object) {
  const TorchPythonSymbols* torch = classes();
  if (torch == nullptr) {
    return false;
  }
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type == *torch->tensor_class || type == *torch->parameter_class) {
    return true;
  }
  if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(*torch->tensor_class)) != 0) {
    throw ConversionError(std::string("a value of type ") + Py_TYPE(object)->tp_name +
                          " cannot cross between interpreters: only torch.Tensor itself and "
                          "nn.Parameter can. Convert it first, for instance with "
                          ".as_subclass(torch.Tensor).");
  }
  return false;
}

const at::Tensor* any_tensor_of(PyObject* object) {
  const TorchPythonSymbols* torch = classes();
  if (torch == nullptr ||
      PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(*torch->tensor_class)) == 0) {
    return nullptr;
  }
  return &tensor_of(object);
}

bool is_parameter(PyObject* object) {
  const TorchPythonSymbols* torch = library.load();
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == *torch->parameter_class;
}

const at::Tensor& tensor_of(PyObject* object) {
  return *reinterpret_cast<const at::Tensor*>(reinterpret_cast<const char*>(object) + kTensorOffset);
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
