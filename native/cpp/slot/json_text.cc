#include "json_text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

namespace interpool {
namespace {

constexpr int kDeepest = 100;  // far from where Python's own writer is at the end of its recursion
constexpr Py_ssize_t kLeast = 256;

class JsonWriter {
 public:
  explicit JsonWriter(ByteWriter& writer) : writer_(writer) {}

  // In the order in which json.encoder asks for types.
  bool write(PyObject* value, int depth) {
    if (PyUnicode_Check(value) != 0) {
      return write_string(value);
    }
    if (value == Py_None) {
      writer_.write("null");
    } else if (value == Py_True) {
      writer_.write("true");
    } else if (value == Py_False) {
      writer_.write("false");
    } else if (PyLong_Check(value) != 0) {
      return write_integer(value);
    } else if (PyFloat_Check(value) != 0) {
      write_float(PyFloat_AS_DOUBLE(value));
    } else {
      return depth < kDeepest && write_container(value, depth);
    }
    return true;
  }

 private:
  bool write_container(PyObject* value, int depth) {
    if (PyList_CheckExact(value) != 0 || PyTuple_CheckExact(value) != 0) {
      return write_sequence(value, depth);
    }
    // A subclass may be iterated in its own way.
    return PyDict_CheckExact(value) != 0 && write_dict(value, depth);
  }

  bool write_string(PyObject* value) {
    if (PyUnicode_READY(value) != 0) {
      throw PendingException();
    }
    if (PyUnicode_IS_ASCII(value) != 0) {
      const std::string_view text(static_cast<const char*>(PyUnicode_DATA(value)),
                                  static_cast<size_t>(PyUnicode_GET_LENGTH(value)));
      const bool plain = std::all_of(text.begin(), text.end(),
                                     [](char c) { return c >= ' ' && c != '"' && c != '\\' && c != '\x7f'; });
      if (plain) {
        writer_.write("\"");
        writer_.write(text);
        writer_.write("\"");
        return true;
      }
    }
    static PyObject* const escape = escaping().release();  // for as long as the interpreter lives
    const Ref text = made(PyObject_CallOneArg(escape, value));
    return write_ascii(text.get());
  }

  static Ref escaping() {
    const Ref module = made(PyImport_ImportModule("json.encoder"));
    return made(PyObject_GetAttrString(module.get(), "encode_basestring_ascii"));
  }

  bool write_integer(PyObject* value) {
    const Ref digits = steal(PyLong_Type.tp_repr(value));
    if (!digits) {  // more of them than Python writes
      PyErr_Clear();
      return false;
    }
    return write_ascii(digits.get());
  }

  bool write_ascii(PyObject* text) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == nullptr) {
      throw PendingException();
    }
    writer_.write({bytes, static_cast<size_t>(size)});
    return true;
  }

  void write_float(double value) {
    if (!std::isfinite(value)) {
      writer_.write(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
      return;
    }
    const std::unique_ptr<char, void (*)(void*)> text(
        PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr), PyMem_Free);
    if (text == nullptr) {
      throw PendingException();
    }
    writer_.write(text.get());
  }

  bool write_sequence(PyObject* value, int depth) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
    if (count == 0) {
      writer_.write("[]");
      return true;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
      writer_.write(i == 0 ? "[" : ",");
      break_line(depth + 1);
      if (!write(PySequence_Fast_GET_ITEM(value, i), depth + 1)) {
        return false;
      }
    }
    break_line(depth);
    writer_.write("]");
    return true;
  }

  bool write_dict(PyObject* value, int depth) {
    if (PyDict_GET_SIZE(value) == 0) {
      writer_.write("{}");
      return true;
    }
    Py_ssize_t at = 0;
    PyObject* key = nullptr;
    PyObject* item = nullptr;
    for (bool first = true; PyDict_Next(value, &at, &key, &item) != 0; first = false) {
      if (PyUnicode_Check(key) == 0) {
        return false;
      }
      writer_.write(first ? "{" : ",");
      break_line(depth + 1);
      write_string(key);
      writer_.write(": ");
      if (!write(item, depth + 1)) {
        return false;
      }
    }
    break_line(depth);
    writer_.write("}");
    return true;
  }

  void break_line(int depth) {
    static constexpr std::string_view kSpaces = "\n                                                  ";
    writer_.write(kSpaces.substr(0, 1));
    for (size_t left = 2 * static_cast<size_t>(depth); left > 0;) {
      const size_t now = std::min(left, kSpaces.size() - 1);
      writer_.write(kSpaces.substr(1, now));
      left -= now;
    }
  }

  ByteWriter& writer_;
};

}  // namespace

ByteWriter::ByteWriter(Py_ssize_t expected)
    : bytes_(made(PyByteArray_FromStringAndSize(nullptr, std::max(expected, kLeast)))) {}

void ByteWriter::write(std::string_view bytes) {
  const auto count = static_cast<Py_ssize_t>(bytes.size());
  const Py_ssize_t room = PyByteArray_GET_SIZE(bytes_.get());
  if (count > room - size_) {
    done(PyByteArray_Resize(bytes_.get(), std::max(2 * room, size_ + count)));
  }
  std::memcpy(PyByteArray_AS_STRING(bytes_.get()) + size_, bytes.data(), bytes.size());
  size_ += count;
}

void ByteWriter::write_int(int32_t value) {
  const auto bits = static_cast<uint32_t>(value);
  const char bytes[] = {static_cast<char>(bits >> 24), static_cast<char>(bits >> 16),
                        static_cast<char>(bits >> 8), static_cast<char>(bits)};
  write({bytes, sizeof bytes});
}

Ref ByteWriter::take() {
  done(PyByteArray_Resize(bytes_.get(), size_));
  return std::move(bytes_);
}

bool write_json(ByteWriter& writer, PyObject* value) {
  return JsonWriter(writer).write(value, 0);
}

}  // namespace interpool
