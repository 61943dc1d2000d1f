// Tensors out of and into this interpreter, sharing memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_map>

#include <interpool/value.h>

namespace interpool {

// A map by address. The first entry, which is the only one of most conversions, is not allocated.
template <typename Key, typename Entry>
class SmallMemo {
 public:
  // Made empty if there is none.
  Entry& operator[](const Key* key) {
    if (first_ == nullptr || first_ == key) {
      first_ = key;
      return entry_;
    }
    return others_[key];
  }

 private:
  const Key* first_ = nullptr;
  Entry entry_;
  std::unordered_map<const Key*, Entry> others_;
};

// One conversion's memory of storages, so that tensors that alias before the
// crossing alias after it.
struct StorageMemo {
  struct Exported {
    c10::Storage storage;  // kept: another one could get its address while the conversion goes on
    std::shared_ptr<Buffer> buffer;
  };
  SmallMemo<c10::StorageImpl, Exported> exported;
  SmallMemo<Buffer, c10::Storage> imported;
};

// Detached: the autograd graph stays where it is. A leaf keeps requires_grad.
// Strided, quantized, sparse and nested tensors, on the CPU, a CUDA device or meta.
// Throws ConversionError for tensors without memory, or that are more than it: wrapped and fake
// tensors, opaque ones, other devices.
TensorView export_tensor(const at::Tensor& tensor, StorageMemo& memo);
at::Tensor import_tensor(const TensorView& view, StorageMemo& memo);

// A pointer for a storage to memory that `owner` keeps alive. Exported tensors share the owner.
c10::DataPtr owned_pointer(void* data, std::shared_ptr<void> owner, c10::Device device);

// A 1-D uint8 tensor over memory that `owner` keeps alive.
at::Tensor tensor_over(void* data, size_t bytes, std::shared_ptr<void> owner);

}  // namespace interpool
