// Tensors of a C++ program, to values and back, without copying.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "value.h"

namespace interpool {

// The tensor's memory, whose size is fixed from here on: resize_ to more throws.
// Dense tensors on the CPU or a CUDA device. Throws ConversionError.
inline Value from_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized() ||
      !(tensor.is_cpu() || tensor.is_cuda())) {
    throw ConversionError(
        "only dense tensors on the CPU or a CUDA device can cross into an interpreter; "
        "convert it first, for instance with to_dense() or dequantize().");
  }
  const c10::Storage& storage = tensor.storage();
  auto buffer = std::make_shared<Buffer>();
  buffer->data = storage.mutable_data();
  buffer->bytes = storage.nbytes();
  buffer->device_type = static_cast<int8_t>(storage.device_type());
  buffer->device_index = storage.device().index();
  storage.unsafeGetStorageImpl()->set_resizable(false);
  buffer->owner = std::make_shared<c10::Storage>(storage);
  TensorView view;
  view.buffer = std::move(buffer);
  view.dtype = static_cast<int8_t>(tensor.scalar_type());
  view.sizes = tensor.sizes().vec();
  view.strides = tensor.strides().vec();
  view.offset = tensor.storage_offset();
  view.requires_grad = tensor.requires_grad() && tensor.is_leaf();
  view.conjugate = tensor.is_conj();
  view.negative = tensor.is_neg();
  return view;
}

// A tensor over the memory that the interpreter's tensor has. Throws ConversionError
// when the value is something else.
inline at::Tensor to_tensor(const Value& value) {
  const TensorView& view = value.as<TensorView>();
  const auto dtype = static_cast<at::ScalarType>(view.dtype);
  const at::Device device(static_cast<at::DeviceType>(view.buffer->device_type), view.buffer->device_index);
  at::Tensor tensor = at::from_blob(
      static_cast<char*>(view.buffer->data) + view.offset * static_cast<int64_t>(at::elementSize(dtype)),
      view.sizes, view.strides, [buffer = view.buffer](void*) {}, at::TensorOptions(device).dtype(dtype),
      device);
  if (view.conjugate) {
    tensor._set_conj(true);
  }
  if (view.negative) {
    tensor._set_neg(true);
  }
  if (view.requires_grad) {
    tensor.set_requires_grad(true);
  }
  return tensor;
}

}  // namespace interpool
