// Plain values on their way from one interpreter to another.
//
// A Value belongs to no interpreter and holds no PyObject, TensorImpl or
// StorageImpl. Tensor data is not copied: a tensor crosses as the description of
// a view plus a reference to the memory (Buffer), around which the receiving
// interpreter makes a storage and a tensor of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace interpool {

// Memory that tensors of several interpreters share. Reference-counted; the last
// reference may go on any thread: the owner's memory is then released on a thread
// of its owner's, never under another interpreter's GIL.
struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  int8_t device_type = 0;    // c10::DeviceType
  int8_t device_index = -1;  // c10::DeviceIndex
  std::shared_ptr<void> owner;
};

struct Quantization {
  int8_t scheme = 0;  // c10::QScheme
  double scale = 1;   // of the whole tensor; per channel they are the view's parts
  int64_t zero_point = 0;
  int64_t axis = 0;
};

struct TensorView {
  int8_t layout = 0;  // c10::Layout
  int8_t dtype = 0;   // c10::ScalarType
  std::vector<int64_t> sizes;
  bool requires_grad = false;
  bool parameter = false;  // an nn.Parameter

  // Of a strided tensor.
  std::shared_ptr<Buffer> buffer;
  std::vector<int64_t> strides;  // in elements
  int64_t offset = 0;            // in elements
  bool conjugate = false;
  bool negative = false;
  std::optional<Quantization> quantization;

  // The tensors that it consists of. Sparse COO: indices, values. Compressed sparse:
  // compressed indices, plain indices, values. Quantized per channel: scales, zero
  // points. Nested: buffer, sizes, strides, offsets.
  std::vector<TensorView> parts;
  bool coalesced = false;  // sparse COO
  bool nested = false;
};

// An object that stays in its interpreter. `object` is that interpreter's
// PyObject*, borrowed from the session that holds it.
struct ObjectRef {
  int interpreter = 0;
  void* object = nullptr;
};

struct Value;
struct None {};
struct Integer {
  std::string hex;  // beyond 64 bits: "-0x1f..."
};
struct Bytes {
  std::string data;
};
struct List {
  std::vector<Value> items;
};
struct Tuple {
  std::vector<Value> items;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in insertion order
};

struct Value {
  std::variant<None, bool, int64_t, Integer, double, std::string, Bytes, List, Tuple, Dict, TensorView,
               ObjectRef>
      data;
};

using Keywords = std::vector<std::pair<std::string, Value>>;

}  // namespace interpool
