#include "convert.h"

#include <string>

#include <interpool/errors.h>
#include "../seam/object_ref.h"
#include "tensors.h"
#include "torch_python.h"

namespace interpool {
namespace {

constexpr int kDeepest = 200;

class Reader {
 public:
  Value read(PyObject* object, int depth) {
    if (depth > kDeepest) {
      throw ConversionError(
          "the value is nested more than 200 deep, or contains itself; only trees of plain values "
          "cross between interpreters.");
    }
    if (object == Py_None) {
      return {None{}};
    }
    if (PyBool_Check(object)) {
      return {object == Py_True};
    }
    if (PyLong_Check(object)) {
      return integer(object);
    }
    if (PyFloat_Check(object)) {
      return {PyFloat_AS_DOUBLE(object)};
    }
    if (PyUnicode_Check(object)) {
      return {to_utf8(object)};
    }
    if (PyBytes_Check(object)) {
      return {Bytes{{PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object))}}};
    }
    if (PyList_Check(object)) {
      // By index, and with the item held: converting an item may run code that
      // changes the list.
      List list;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) {
        const Ref item = borrow(PyList_GET_ITEM(object, i));
        list.items.push_back(read(item.get(), depth + 1));
      }
      return {std::move(list)};
    }
    if (PyTuple_Check(object)) {
      Tuple tuple;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
        tuple.items.push_back(read(PyTuple_GET_ITEM(object, i), depth + 1));
      }
      return {std::move(tuple)};
    }
    if (PyDict_Check(object)) {
      const Ref items = checked(PyMapping_Items(object));
      Dict dict;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
        PyObject* pair = PyList_GET_ITEM(items.get(), i);
        if (PyTuple_Check(pair) == 0 || PyTuple_GET_SIZE(pair) != 2) {  // of a subclass's own items()
          throw ConversionError(std::string("a value of type ") + Py_TYPE(object)->tp_name +
                                " cannot cross between interpreters: its items() gives something else than "
                                "pairs. Pass dict() of what it holds.");
        }
        Value key = read(PyTuple_GET_ITEM(pair, 0), depth + 1);
        dict.items.emplace_back(std::move(key), read(PyTuple_GET_ITEM(pair, 1), depth + 1));
      }
      return {std::move(dict)};
    }
    if (is_tensor(object)) {
      TensorView view = export_tensor(tensor_of(object), memo_);
      view.parameter = is_parameter(object);
      return {std::move(view)};
    }
    throw ConversionError(
        std::string("a value of type ") + Py_TYPE(object)->tp_name +
        " cannot cross between interpreters; None, bool, int, float, str, bytes, list, tuple, "
        "dict and torch.Tensor can. Convert it first, or keep it inside as a PyObj.");
  }

 private:
  static Value integer(PyObject* object) {
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow == 0) {
      if (small == -1 && PyErr_Occurred() != nullptr) {
        throw_pending();
      }
      return {static_cast<int64_t>(small)};
    }
    const Ref digits = checked(PyNumber_ToBase(object, 16));
    return {Integer{to_utf8(digits.get())}};
  }

  StorageMemo memo_;
};

class Writer {
 public:
  explicit Writer(int interpreter) : interpreter_(interpreter) {}

  Ref operator()(const None&) { return borrow(Py_None); }
  Ref operator()(bool value) { return steal(PyBool_FromLong(value ? 1 : 0)); }
  Ref operator()(int64_t value) { return checked(PyLong_FromLongLong(value)); }
  Ref operator()(const Integer& value) { return checked(PyLong_FromString(value.hex.c_str(), nullptr, 16)); }
  Ref operator()(double value) { return checked(PyFloat_FromDouble(value)); }
  Ref operator()(const std::string& value) { return from_utf8(value); }
  Ref operator()(const Bytes& value) {
    return checked(PyBytes_FromStringAndSize(value.data.data(), static_cast<Py_ssize_t>(value.data.size())));
  }
  Ref operator()(const List& value) {
    Ref list = checked(PyList_New(static_cast<Py_ssize_t>(value.items.size())));
    for (size_t i = 0; i < value.items.size(); ++i) {
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), write(value.items[i]).release());
    }
    return list;
  }
  Ref operator()(const Tuple& value) {
    Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(value.items.size())));
    for (size_t i = 0; i < value.items.size(); ++i) {
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), write(value.items[i]).release());
    }
    return tuple;
  }
  Ref operator()(const Dict& value) {
    Ref dict = checked(PyDict_New());
    for (const auto& [key, item] : value.items) {
      const Ref key_object = write(key);
      const Ref item_object = write(item);
      check(PyDict_SetItem(dict.get(), key_object.get(), item_object.get()));
    }
    return dict;
  }
  Ref operator()(const TensorView& value) {
    require_torch();
    const at::Tensor tensor = import_tensor(value, memo_);
    return value.parameter ? wrap_parameter(tensor) : wrap_tensor(tensor);
  }
  Ref operator()(const ObjectRef& value) {
    return borrow(static_cast<PyObject*>(object_in(value, interpreter_)));
  }

  Ref write(const Value& value) { return std::visit(*this, value.data); }

 private:
  const int interpreter_;
  StorageMemo memo_;
};

}  // namespace

Value value_of(PyObject* object) {
  return Reader().read(object, 0);
}

Ref object_of(const Value& value, int interpreter) {
  Writer writer(interpreter);
  return writer.write(value);
}

}  // namespace interpool
