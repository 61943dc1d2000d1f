#include "tensors.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>

#include <string>

#include <interpool/errors.h>
#include "home.h"

namespace interpool {
namespace {

// Whoever keeps a storage's memory alive.
using Owner = std::shared_ptr<void>;

// The deleter of every storage whose memory has crossed, in or out; its context is
// an Owner. c10's own refcounted deleter will not do: it decrements and then looks
// at the count again, so two threads that let go at once may both free.
void drop_owner(void* context) {
  delete static_cast<Owner*>(context);
}

// Makes the storage share its memory's ownership, and returns a share. A share is
// of the memory, not of the StorageImpl: the exporter may resize or free that.
Owner owner_of(const c10::Storage& storage) {
  storage.mutable_data();  // a copy-on-write storage gets memory of its own first
  c10::DataPtr& pointer = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (auto* known = pointer.cast_context<Owner>(&drop_owner)) {
    return *known;
  }
  auto* original = new c10::DataPtr;
  // The memory's deleter may need this interpreter's GIL (numpy's does), and the
  // last user may hold another one's: it goes on this interpreter's own thread.
  Owner owner(original, [](void* owned) {
    Home::get().run_later([owned] { delete static_cast<c10::DataPtr*>(owned); });
  });
  // At no moment does the storage point elsewhere: an operator may be using it.
  c10::DataPtr shared(pointer.mutable_get(), new Owner(owner), &drop_owner, pointer.device());
  std::swap(pointer, shared);
  *original = std::move(shared);
  return owner;
}

std::shared_ptr<Buffer> export_storage(const c10::Storage& storage, StorageMemo& memo) {
  auto& known = memo.exported[storage.unsafeGetStorageImpl()];
  if (!known) {
    auto buffer = std::make_shared<Buffer>();
    buffer->owner = owner_of(storage);
    buffer->data = storage.mutable_data();
    buffer->bytes = storage.nbytes();
    buffer->device_type = static_cast<int8_t>(storage.device_type());
    buffer->device_index = storage.device().index();
    known = std::move(buffer);
  }
  return known;
}

c10::Storage storage_over(void* data, size_t bytes, c10::Device device, Owner owner) {
  c10::DataPtr pointer(data, new Owner(std::move(owner)), &drop_owner, device);
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(pointer),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

c10::DispatchKey key_of(c10::Device device) {
  return device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
}

[[noreturn]] void refuse(const std::string& kind) {
  throw ConversionError("a " + kind +
                        " tensor cannot cross between interpreters: only dense (strided) tensors "
                        "on the CPU or a CUDA device can. Convert it before, for instance with "
                        ".to_dense() or .dequantize().");
}

}  // namespace

TensorView export_tensor(const at::Tensor& tensor, StorageMemo& memo) {
  if (!tensor.defined()) {
    refuse("undefined");
  }
  if (tensor.is_quantized()) {
    refuse("quantized");
  }
  if (tensor.is_nested()) {
    refuse("nested");
  }
  if (tensor.layout() != c10::kStrided) {
    refuse("sparse");
  }
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
    refuse(tensor.device().str());
  }
  if (tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python) || !tensor.has_storage()) {
    refuse("fake or wrapped");
  }
  TensorView view;
  view.buffer = export_storage(tensor.storage(), memo);
  view.dtype = static_cast<int8_t>(tensor.scalar_type());
  view.sizes = tensor.sizes().vec();
  view.strides = tensor.strides().vec();
  view.offset = tensor.storage_offset();
  view.requires_grad = tensor.requires_grad() && tensor.is_leaf();
  view.conjugate = tensor.is_conj();
  view.negative = tensor.is_neg();
  return view;
}

at::Tensor import_tensor(const TensorView& view, StorageMemo& memo) {
  const c10::Device device(static_cast<c10::DeviceType>(view.buffer->device_type), view.buffer->device_index);
  auto known = memo.imported.find(view.buffer.get());
  if (known == memo.imported.end()) {
    known = memo.imported
                .emplace(view.buffer.get(),
                         storage_over(view.buffer->data, view.buffer->bytes, device, view.buffer))
                .first;
  }
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(known->second), c10::DispatchKeySet(key_of(device)),
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(view.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes, view.strides, view.offset);
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

at::Tensor tensor_over(void* data, size_t bytes, std::shared_ptr<void> owner) {
  const c10::Device device(c10::DeviceType::CPU);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(storage_over(data, bytes, device, std::move(owner)),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(c10::kByte));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(bytes)});
  return tensor;
}

}  // namespace interpool
