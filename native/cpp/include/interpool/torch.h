// Tensors of a C++ program, to values and back, without copying.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "value.h"

namespace interpool {

namespace detail {

// The deleter of memory that came out of an interpreter; its context is the owner.
inline void drop_owner(void* context) {
  delete static_cast<std::shared_ptr<void>*>(context);
}

// Who keeps the storage's memory. What came out of an interpreter goes back in with the owner that it has.
// Otherwise memory that goes in and out many times would be kept by as long a chain.
inline std::shared_ptr<void> owner_of(const c10::Storage& storage) {
  if (auto* known = storage.data_ptr().cast_context<std::shared_ptr<void>>(&drop_owner)) {
    return *known;
  }
  return std::make_shared<c10::Storage>(storage);
}

}  // namespace detail

// The tensor's memory, whose size is fixed from here on: resize_ to more throws.
// Dense tensors on the CPU or a CUDA device. Throws ConversionError.
inline Value from_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_nested() || tensor.is_quantized() ||
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
  buffer->owner = detail::owner_of(storage);
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

// A tensor over the memory that the interpreter's tensor has, which is dense. Throws
// ConversionError when the value is something else.
inline at::Tensor to_tensor(const Value& value) {
  const TensorView& view = value.as<TensorView>();
  if (view.buffer == nullptr || view.quantization.has_value()) {
    throw ConversionError(
        "only dense tensors can become a C++ program's; convert it inside, for instance with to_dense() or "
        "dequantize().");
  }
  const auto dtype = static_cast<at::ScalarType>(view.dtype);
  const at::Device device(static_cast<at::DeviceType>(view.buffer->device_type), view.buffer->device_index);
  const Buffer& buffer = *view.buffer;
  const c10::Storage storage(
      c10::Storage::use_byte_size_t(), buffer.bytes,
      c10::DataPtr(buffer.data, new std::shared_ptr<void>(buffer.owner), &detail::drop_owner, device),
      /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor tensor = at::empty({0}, at::TensorOptions(device).dtype(dtype));
  tensor.set_(storage, view.offset, view.sizes, view.strides);
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
