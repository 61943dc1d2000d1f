#include "tensors.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>

#include <initializer_list>
#include <string>
#include <vector>

#include <interpool/errors.h>
#include "../seam/reported.h"
#include "main_thread.h"
#include "storages.h"

namespace interpool {
namespace {

// What keeps a storage's memory alive.
using Owner = std::shared_ptr<void>;

// The deleter of every storage whose memory has crossed, in or out; its context is an Owner. c10's own
// refcounted deleter will not do. It decrements and then looks at the count again, so two threads that
// release at once may both free.
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
  // last user may hold another one's: it goes on this interpreter's main thread. What is
  // torch's own needs none, and waking that thread for each answer would cost a switch to it.
  Owner owner = is_allocated_by_torch(pointer)
                    ? Owner(original, [](void* owned) { delete static_cast<c10::DataPtr*>(owned); })
                    : Owner(original, [](void* owned) {
                        // If there is no memory to queue the work, the storage is leaked.
                        reported([owned] {
                          MainThread::get().run_later([owned] { delete static_cast<c10::DataPtr*>(owned); });
                        });
                      });
  // At no moment does the storage point elsewhere: an operator may be using it.
  c10::DataPtr shared(pointer.mutable_get(), new Owner(owner), &drop_owner, pointer.device());
  std::swap(pointer, shared);
  *original = std::move(shared);
  return owner;
}

std::shared_ptr<Buffer> export_storage(const c10::Storage& storage, StorageMemo& memo) {
  StorageMemo::Exported& known = memo.exported[storage.unsafeGetStorageImpl()];
  if (!known.buffer) {
    auto buffer = std::make_shared<Buffer>();
    if (!storage.device().is_meta()) {  // those have a size and no memory
      buffer->owner = owner_of(storage);
      buffer->data = storage.mutable_data();
    }
    buffer->bytes = storage.nbytes();
    buffer->device_type = static_cast<int8_t>(storage.device_type());
    buffer->device_index = storage.device().index();
    known = {.storage = storage, .buffer = std::move(buffer)};
  }
  return known.buffer;
}

c10::Storage storage_over(void* data, size_t bytes, c10::Device device, Owner owner) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, owned_pointer(data, std::move(owner), device),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

c10::Storage import_storage(const std::shared_ptr<Buffer>& buffer, StorageMemo& memo) {
  c10::Storage& known = memo.imported[buffer.get()];
  if (!known) {
    const c10::Device device(static_cast<c10::DeviceType>(buffer->device_type), buffer->device_index);
    known = device.is_meta()
                ? c10::Storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(buffer->bytes),
                               c10::GetAllocator(c10::DeviceType::Meta), /*resizable=*/true)
                : storage_over(buffer->data, buffer->bytes, device, buffer->owner);
  }
  return known;
}

[[noreturn]] void refuse(const std::string& kind, const std::string& advice) {
  throw ConversionError("a " + kind + " tensor cannot cross between interpreters. " + advice);
}

// Refuses tensors that are more than their memory, which would be lost, or that have none.
void refuse_wrappers(const at::Tensor& tensor) {
  using enum c10::DispatchKey;
  constexpr c10::DispatchKeySet kWrapped({Python, FuncTorchGradWrapper, FuncTorchBatched, Batched,
                                          BatchedNestedTensor, Functionalize,
                                          FuncTorchDynamicLayerFrontMode});
  const c10::DispatchKeySet keys = tensor.key_set();
  if (keys.has_any(kWrapped)) {
    refuse("fake or wrapped",
           "It stands for others, or for none (FakeTensor, a subclass written in Python, inside of vmap or "
           "grad): pass the tensor that it was made from.");
  }
  if (keys.has(ZeroTensor)) {
    refuse("zero (torch._efficientzerotensor)", "It has no memory: pass a .clone() of it.");
  }
  if (tensor.layout() == c10::kMkldnn) {
    refuse("mkldnn (opaque)", "Pass .to_dense() of it.");
  }
  const c10::Device device = tensor.device();
  if (!device.is_cpu() && !device.is_cuda() && !device.is_meta()) {
    refuse(device.str(), "Those on the CPU, a CUDA device or meta can: pass .cpu() of it.");
  }
}

std::vector<TensorView> export_parts(std::initializer_list<at::Tensor> parts, StorageMemo& memo) {
  std::vector<TensorView> views;
  for (const at::Tensor& part : parts) {
    views.push_back(export_tensor(part, memo));
  }
  return views;
}

void export_quantization(const at::Tensor& tensor, TensorView& view, StorageMemo& memo) {
  const c10::intrusive_ptr<at::Quantizer> quantizer = at::get_qtensorimpl(tensor)->quantizer();
  Quantization& how = view.quantization.emplace();
  how.scheme = static_cast<int8_t>(quantizer->qscheme());
  switch (quantizer->qscheme()) {
    case c10::kPerTensorAffine: {
      const auto& affine = static_cast<const at::PerTensorAffineQuantizer&>(*quantizer);
      how.scale = affine.scale();
      how.zero_point = affine.zero_point();
      break;
    }
    case c10::kPerChannelAffine:
    case c10::kPerChannelAffineFloatQParams: {
      const auto& affine = static_cast<const at::PerChannelAffineQuantizer&>(*quantizer);
      how.axis = affine.axis();
      view.parts = export_parts({affine.scales(), affine.zero_points()}, memo);
      break;
    }
    default:
      refuse("quantized (" + c10::toString(quantizer->qscheme()) + ")",
             "Those quantized per tensor or per channel can: pass .dequantize() of it.");
  }
}

void export_strided(const at::Tensor& tensor, TensorView& view, StorageMemo& memo) {
  if (!tensor.has_storage()) {
    refuse("storageless", "It has no memory: pass a .clone() of it.");
  }
  view.buffer = export_storage(tensor.storage(), memo);
  view.sizes = tensor.sizes().vec();
  view.strides = tensor.strides().vec();
  view.offset = tensor.storage_offset();
  view.conjugate = tensor.is_conj();
  view.negative = tensor.is_neg();
  if (tensor.is_quantized()) {
    export_quantization(tensor, view, memo);
  }
}

void export_nested(const at::Tensor& tensor, TensorView& view, StorageMemo& memo) {
  if (tensor.layout() != c10::kStrided) {
    refuse("jagged nested", "Pass its .values() and .offsets(), and make one of them on the other side.");
  }
  const auto* nested = at::native::get_nested_tensor_impl(tensor);
  // All of its memory, as one row.
  TensorView row;
  row.buffer = export_storage(tensor.storage(), memo);
  row.dtype = view.dtype;
  row.sizes = {static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize())};
  row.strides = {1};
  view.nested = true;
  view.parts = export_parts(
      {nested->get_nested_sizes(), nested->get_nested_strides(), nested->get_storage_offsets()}, memo);
  view.parts.insert(view.parts.begin(), std::move(row));
}

caffe2::TypeMeta type_of(const TensorView& view) {
  return c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(view.dtype));
}

c10::DispatchKeySet keys_of(const TensorView& view, c10::Device device) {
  return c10::DispatchKeySet(c10::computeDispatchKey(static_cast<c10::ScalarType>(view.dtype),
                                                     static_cast<c10::Layout>(view.layout), device));
}

at::Tensor import_strided(const TensorView& view, StorageMemo& memo) {
  c10::Storage storage = import_storage(view.buffer, memo);
  const c10::DispatchKeySet keys = keys_of(view, storage.device());
  at::Tensor tensor;
  if (view.quantization.has_value()) {
    const Quantization& how = *view.quantization;
    const auto type = static_cast<c10::ScalarType>(view.dtype);
    auto quantizer =
        view.parts.empty()
            ? at::make_per_tensor_affine_quantizer(how.scale, how.zero_point, type)
            : at::make_per_channel_affine_quantizer(import_tensor(view.parts[0], memo),
                                                    import_tensor(view.parts[1], memo), how.axis, type);
    tensor = at::detail::make_tensor<at::QTensorImpl>(std::move(storage), keys, type_of(view),
                                                      std::move(quantizer));
  } else {
    tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, type_of(view));
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes, view.strides, view.offset);
  if (view.conjugate) {
    tensor._set_conj(true);
  }
  if (view.negative) {
    tensor._set_neg(true);
  }
  return tensor;
}

at::Tensor import_sparse(const TensorView& view, StorageMemo& memo) {
  std::vector<at::Tensor> parts;
  for (const TensorView& part : view.parts) {
    parts.push_back(import_tensor(part, memo));
  }
  const c10::Device device = parts.back().device();
  const c10::DispatchKeySet keys = keys_of(view, device);
  if (view.layout == static_cast<int8_t>(c10::kSparse)) {
    auto tensor = at::detail::make_tensor<at::SparseTensorImpl>(keys, type_of(view));
    auto* sparse = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    sparse->resize_(parts[0].size(0), parts[1].dim() - 1, view.sizes);
    sparse->set_indices_and_values_unsafe(parts[0], parts[1]);
    sparse->set_coalesced(view.coalesced);
    return tensor;
  }
  auto tensor = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      keys, device, static_cast<c10::Layout>(view.layout), type_of(view));
  static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl())
      ->set_member_tensors(parts[0], parts[1], parts[2], c10::IntArrayRef(view.sizes));
  return tensor;
}

}  // namespace

TensorView export_tensor(const at::Tensor& tensor, StorageMemo& memo) {
  if (!tensor.defined()) {
    refuse("undefined", "Pass None for it.");
  }
  refuse_wrappers(tensor);
  TensorView view;
  view.layout = static_cast<int8_t>(tensor.layout());
  view.dtype = static_cast<int8_t>(tensor.scalar_type());
  view.requires_grad = tensor.requires_grad() && tensor.is_leaf();
  if (tensor.is_nested()) {
    export_nested(tensor, view, memo);
  } else if (tensor.layout() == c10::kStrided) {
    export_strided(tensor, view, memo);
  } else if (tensor.layout() == c10::kSparse) {
    const auto* sparse = static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    view.sizes = tensor.sizes().vec();
    view.coalesced = sparse->coalesced();
    view.parts = export_parts({sparse->indices(), sparse->values()}, memo);
  } else if (at::sparse_csr::is_sparse_compressed(tensor.layout())) {
    const auto* sparse = static_cast<const at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
    view.sizes = tensor.sizes().vec();
    view.parts =
        export_parts({sparse->compressed_indices(), sparse->plain_indices(), sparse->values()}, memo);
  } else {
    refuse(c10::str(tensor.layout()), "Pass .to_dense() of it.");
  }
  return view;
}

at::Tensor import_tensor(const TensorView& view, StorageMemo& memo) {
  at::Tensor tensor;
  if (view.nested) {
    tensor = at::detail::make_tensor<at::native::NestedTensorImpl>(
        import_tensor(view.parts[0], memo), import_tensor(view.parts[1], memo),
        import_tensor(view.parts[2], memo), import_tensor(view.parts[3], memo));
  } else if (view.buffer != nullptr) {
    tensor = import_strided(view, memo);
  } else {
    tensor = import_sparse(view, memo);
  }
  if (view.requires_grad) {
    tensor.set_requires_grad(true);
  }
  return tensor;
}

c10::DataPtr owned_pointer(void* data, std::shared_ptr<void> owner, c10::Device device) {
  return {data, new Owner(std::move(owner)), &drop_owner, device};
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
