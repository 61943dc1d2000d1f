// This interpreter's own libtorch_python, reached by name once it is loaded: the
// slot's library starts Python, and so is loaded before it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <string>

#include "python.h"

namespace interpool {

// Call right after the file was mapped and before torch._C is initialised: puts
// the router in front of its PyInterpreter. Needs no GIL. Once per interpreter.
void adopt_torch_python(int interpreter, const std::string& path);

// Imports torch into this interpreter, if it is not there. Needs the GIL.
void require_torch();

// Is it a torch.Tensor or nn.Parameter (true), another type (false)? A subclass
// of Tensor throws ConversionError: its behaviour would be lost on the way.
bool is_tensor(PyObject* object);

// The tensor in an object of torch.Tensor's class or one derived from it; null for other objects.
const at::Tensor* any_tensor_of(PyObject* object);

// Of what is_tensor says yes to: is it an nn.Parameter?
bool is_parameter(PyObject* object);

const at::Tensor& tensor_of(PyObject* object);
Ref wrap_tensor(const at::Tensor& tensor);
// An nn.Parameter over the tensor's memory; a leaf that wants a gradient as it does.
Ref wrap_parameter(const at::Tensor& tensor);

}  // namespace interpool
