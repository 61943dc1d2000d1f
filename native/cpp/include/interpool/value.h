// Plain values on their way from one interpreter to another.
//
// A Value belongs to no interpreter and holds no PyObject, TensorImpl or StorageImpl. Tensor data is not
// copied. A tensor crosses as the description of a view plus a reference to the memory (Buffer). The
// receiving interpreter makes a storage and a tensor of its own around it.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "errors.h"

namespace interpool {

// Memory that tensors of several interpreters share. Reference-counted; the last
// reference may go on any thread: the owner's memory is then released on its
// owner's main thread, never under another interpreter's GIL.
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

// An object that stays in its interpreter: what a PyObj becomes as an argument. Keeps the object, and the
// lease, as a PyObj does: until the session closes. May be copied and dropped on any thread.
struct ObjectRef {
  int interpreter = 0;
  std::shared_ptr<void> object;                   // that interpreter's PyObject*
  std::shared_ptr<const std::atomic<bool>> open;  // its session's: false before the object is released
};

struct Value;

// Is T one of the kinds of a variant?
template <typename T, typename Variant>
struct OneOf;
template <typename T, typename... Kinds>
struct OneOf<T, std::variant<Kinds...>> : std::disjunction<std::is_same<T, Kinds>...> {};

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

// Implicitly made from any of its kinds, from int and from string literals.
struct Value {
  using Data = std::variant<None, bool, int64_t, Integer, double, std::string, Bytes, List, Tuple, Dict,
                            TensorView, ObjectRef>;

  Value() = default;  // None
  template <typename T>
    requires OneOf<std::remove_cvref_t<T>, Data>::value
  Value(T&& value) : data(std::forward<T>(value)) {}  // NOLINT(google-explicit-constructor)
  template <std::same_as<int> T>                      // not what merely converts to int
  Value(T value) : data(int64_t{value}) {}
  Value(const char* text) : data(std::string(text)) {}

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  // Throws ConversionError when it is of another kind.
  template <typename T>
  const T& as() const {
    if (const T* found = std::get_if<T>(&data)) {
      return *found;
    }
    throw ConversionError(std::string("a value is ") + kind() + ", which is not what was asked for.");
  }
  // What Python calls it.
  const char* kind() const;

  Data data;
};

inline const char* Value::kind() const {
  struct Name {
    const char* operator()(const None&) { return "None"; }
    const char* operator()(bool) { return "a bool"; }
    const char* operator()(int64_t) { return "an int"; }
    const char* operator()(const Integer&) { return "an int beyond 64 bits"; }
    const char* operator()(double) { return "a float"; }
    const char* operator()(const std::string&) { return "a str"; }
    const char* operator()(const Bytes&) { return "bytes"; }
    const char* operator()(const List&) { return "a list"; }
    const char* operator()(const Tuple&) { return "a tuple"; }
    const char* operator()(const Dict&) { return "a dict"; }
    const char* operator()(const TensorView&) { return "a tensor"; }
    const char* operator()(const ObjectRef&) { return "an object that stays in its interpreter"; }
  };
  return std::visit(Name{}, data);
}

using Keywords = std::vector<std::pair<std::string, Value>>;

}  // namespace interpool
