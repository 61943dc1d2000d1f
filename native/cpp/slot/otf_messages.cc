#include "otf_messages.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "json_text.h"

namespace interpool {
namespace {

// ---- names, made once ---------------------------------------------------------------------------

// A string that lives as long as its interpreter does.
PyObject* text(const char* name) {
  return made(PyUnicode_InternFromString(name)).release();
}

struct Names {
  PyObject* const request_id = text("requestId");
  PyObject* const headers = text("headers");
  PyObject* const parameters = text("parameters");
  PyObject* const name = text("name");
  PyObject* const value = text("value");
  PyObject* const content_type = text("contentType");
  PyObject* const environ = text("environ");
  PyObject* const get = text("get");
  PyObject* const loads = text("loads");
  PyObject* const decode_wanted = text("TS_DECODE_INPUT_REQUEST");
  PyObject* const local_rank = text("LOCAL_RANK");
  PyObject* const stopping_criteria = text("stopping_criteria");
  PyObject* const get_response_headers = text("get_response_headers");
  PyObject* const get_response_content_type = text("get_response_content_type");
  PyObject* const get_response_status = text("get_response_status");
  PyObject* const stream_next = text("ts_stream_next");
  PyObject* const os = made(PyImport_ImportModule("os")).release();
  PyObject* const json = made(PyImport_ImportModule("json")).release();
};

const Names& names() {
  static const Names all;  // in a private copy: this interpreter's
  return all;
}

// os.environ.get(name): the model's own, which it may have changed.
Ref variable(PyObject* name) {
  const Ref environ = made(PyObject_GetAttr(names().os, names().environ));
  return made(PyObject_CallMethodOneArg(environ.get(), names().get, name));
}

bool equals(PyObject* object, const char* ascii) {
  return PyUnicode_Check(object) != 0 && PyUnicode_CompareWithASCIIString(object, ascii) == 0;
}

// Thrown where TorchServe's own code is to do it.
struct Unusual {};

// ---- decoding -----------------------------------------------------------------------------------

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  Ref batch() {
    if (bytes_.empty() || bytes_[0] != 'I') {
      throw Unusual();
    }
    at_ = 1;
    Ref requests = made(PyList_New(0));
    while (const auto id = item()) {
      append(requests, request(*id));
    }
    return requests;
  }

 private:
  Ref request(std::string_view id) {
    Ref request = made(PyDict_New());
    set(request, names().request_id, raw(id));
    Ref headers = made(PyList_New(0));
    while (const auto name = item()) {
      const Ref header = made(PyDict_New());
      set(header, names().name, raw(*name));
      set(header, names().value, raw(field()));
      append(headers, header);
    }
    set(request, names().headers, headers);
    Ref parameters = made(PyList_New(0));
    while (const auto name = item()) {
      const Ref parameter = made(PyDict_New());
      set(parameter, names().name, decoded(*name));
      const std::string_view content_type = field();
      set(parameter, names().content_type, decoded(content_type));
      set(parameter, names().value, value(content_type, field()));
      append(parameters, parameter);
    }
    set(request, names().parameters, parameters);
    return request;
  }

  Ref value(std::string_view content_type, std::string_view bytes) {
    if (content_type == "application/json" && wanted()) {
      const Ref json = decoded(bytes);
      Ref loaded(PyObject_CallMethodOneArg(names().json, names().loads, json.get()));
      if (!loaded) {
        refuse();
      }
      return loaded;
    }
    if (content_type.starts_with("text") && wanted()) {
      return decoded(bytes);
    }
    return raw(bytes);
  }

  // Whether texts are decoded at all. Once for a message.
  bool wanted() {
    if (!wanted_.has_value()) {
      const Ref found = variable(names().decode_wanted);
      wanted_ = found.get() == Py_None || equals(found.get(), "true");
    }
    return *wanted_;
  }

  static Ref raw(std::string_view bytes) {
    return made(PyByteArray_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  }

  static Ref decoded(std::string_view bytes) {
    Ref made(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), nullptr));
    if (!made) {
      refuse();
    }
    return made;
  }

  // TorchServe logs an Exception and goes on. What else stops a call, stops it here, too.
  [[noreturn]] static void refuse() {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
      throw PendingException();
    }
    PyErr_Clear();
    throw Unusual();
  }

  static void set(const Ref& dict, PyObject* key, const Ref& value) {
    done(PyDict_SetItem(dict.get(), key, value.get()));
  }
  static void append(const Ref& list, const Ref& value) { done(PyList_Append(list.get(), value.get())); }

  // Lists end with -1 in the place of the next item's first length.
  std::optional<std::string_view> item() {
    const int32_t length = integer();
    if (length == -1) {
      return std::nullopt;
    }
    return take(length);
  }
  std::string_view field() { return take(integer()); }

  std::string_view take(int32_t length) {
    if (length < 0 || static_cast<size_t>(length) > bytes_.size() - at_) {
      throw Unusual();
    }
    const std::string_view part = bytes_.substr(at_, static_cast<size_t>(length));
    at_ += static_cast<size_t>(length);
    return part;
  }
  int32_t integer() {
    uint32_t value = 0;
    for (const char byte : take(4)) {
      value = value << 8 | static_cast<uint8_t>(byte);
    }
    return static_cast<int32_t>(value);
  }

  const std::string_view bytes_;
  size_t at_ = 0;
  std::optional<bool> wanted_;
};

// ---- encoding -----------------------------------------------------------------------------------

class Encoder {
 public:
  Encoder(PyObject* context, bool plain_json, Py_ssize_t expected)
      : context_(context), plain_json_(plain_json), writer_(expected) {}

  Ref encode(PyObject* answers, PyObject* request_ids, PyObject* message, int32_t code) {
    writer_.write_int(code);
    write_text(message);
    Py_ssize_t at = 0;
    PyObject* index = nullptr;
    PyObject* id = nullptr;
    while (PyDict_Next(request_ids, &at, &index, &id) != 0) {
      const Py_ssize_t number = PyLong_CheckExact(index) != 0 ? PyLong_AsSsize_t(index) : -1;
      if (number < 0) {
        PyErr_Clear();  // there may be no such number
        throw Unusual();
      }
      const Ref held_index(Py_NewRef(index));
      write_text(Ref(Py_NewRef(id)).get());
      write_head(index);
      if (number >= PyList_GET_SIZE(answers)) {
        throw Unusual();
      }
      write_answer(Ref(Py_NewRef(PyList_GET_ITEM(answers, number))).get());
    }
    writer_.write_int(-1);  // end of list
    return writer_.take();
  }

 private:
  // An answer's content type, status and headers.
  void write_head(PyObject* index) {
    const Ref headers = ask(names().get_response_headers, index);
    if (PyDict_CheckExact(headers.get()) == 0) {
      throw Unusual();
    }
    PyObject* next = PyDict_GetItemWithError(headers.get(), names().stream_next);
    if (PyErr_Occurred() != nullptr) {
      throw PendingException();
    }
    if (next != nullptr && (PyUnicode_CheckExact(next) == 0 || equals(next, "true"))) {
      throw Unusual();  // a stream ends
    }
    write_ascii(ask(names().get_response_content_type, index).get());
    const Ref status = ask(names().get_response_status, index);
    if (PyTuple_CheckExact(status.get()) == 0 || PyTuple_GET_SIZE(status.get()) != 2) {
      throw Unusual();
    }
    PyObject* code = PyTuple_GET_ITEM(status.get(), 0);
    writer_.write_int(code == Py_None ? 200 : number(code));
    write_ascii(PyTuple_GET_ITEM(status.get(), 1));
    writer_.write_int(size(PyDict_GET_SIZE(headers.get())));
    Py_ssize_t at = 0;
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    while (PyDict_Next(headers.get(), &at, &name, &value) != 0) {
      write_text(name);
      write_text(value);
    }
  }

  // As TorchServe tells types apart; what is left is JSON, or a tensor.
  void write_answer(PyObject* answer) {
    if (PyBytes_CheckExact(answer) != 0) {
      write_field({PyBytes_AS_STRING(answer), static_cast<size_t>(PyBytes_GET_SIZE(answer))});
    } else if (PyByteArray_CheckExact(answer) != 0) {
      write_field({PyByteArray_AS_STRING(answer), static_cast<size_t>(PyByteArray_GET_SIZE(answer))});
    } else if (PyUnicode_Check(answer) != 0) {
      write_text(answer);
    } else {
      ByteWriter json(0);
      if (!plain_json_ || !write_json(json, answer)) {
        throw Unusual();
      }
      const Ref text = json.take();
      write_field({PyByteArray_AS_STRING(text.get()), static_cast<size_t>(PyByteArray_GET_SIZE(text.get()))});
    }
  }

  Ref ask(PyObject* method, PyObject* index) {
    return made(PyObject_CallMethodOneArg(context_, method, index));
  }

  void write_field(std::string_view bytes) {
    writer_.write_int(size(static_cast<Py_ssize_t>(bytes.size())));
    writer_.write(bytes);
  }

  void write_text(PyObject* text) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_CheckExact(text) != 0 ? PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
    if (bytes == nullptr) {
      PyErr_Clear();
      throw Unusual();
    }
    write_field({bytes, static_cast<size_t>(size)});
  }

  // TorchServe counts these in characters. None is an empty one.
  void write_ascii(PyObject* text) {
    if (text == Py_None) {
      writer_.write_int(0);
    } else if (PyUnicode_CheckExact(text) != 0 && PyUnicode_IS_ASCII(text) != 0) {
      write_text(text);
    } else {
      throw Unusual();
    }
  }

  static int32_t size(Py_ssize_t bytes) {
    if (bytes > std::numeric_limits<int32_t>::max()) {
      throw Unusual();
    }
    return static_cast<int32_t>(bytes);
  }

  static int32_t number(PyObject* object) {
    int overflow = 1;
    const long value = PyLong_CheckExact(object) != 0 ? PyLong_AsLongAndOverflow(object, &overflow) : 0;
    if (overflow != 0 || value != static_cast<int32_t>(value)) {
      throw Unusual();
    }
    return static_cast<int32_t>(value);
  }

  PyObject* const context_;
  const bool plain_json_;
  ByteWriter writer_;
};

// Bytes of answers that are bytes, and a little for the rest.
Py_ssize_t expected_size(PyObject* answers) {
  Py_ssize_t expected = 64;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(answers); ++i) {
    PyObject* answer = PyList_GET_ITEM(answers, i);
    expected += 192;
    if (PyBytes_CheckExact(answer) != 0) {
      expected += PyBytes_GET_SIZE(answer);
    } else if (PyByteArray_CheckExact(answer) != 0) {
      expected += PyByteArray_GET_SIZE(answer);
    }
  }
  return expected;
}

Ref encoded(PyObject* const* arguments) {
  PyObject* const answers = arguments[0];
  PyObject* const request_ids = arguments[1];
  PyObject* const context = arguments[4];
  if (PyList_CheckExact(answers) == 0 || PyDict_CheckExact(request_ids) == 0) {
    throw Unusual();
  }
  const Ref rank = variable(names().local_rank);  // of several processes of a model, one answers
  const Ref criteria = made(PyObject_GetAttr(context, names().stopping_criteria));
  const int streams = PyObject_IsTrue(criteria.get());
  done(streams);
  if (streams != 0 || (rank.get() != Py_None && !equals(rank.get(), "0"))) {
    throw Unusual();
  }
  const auto code = static_cast<int32_t>(PyLong_AsLong(arguments[3]));
  return Encoder(context, arguments[5] == Py_True, expected_size(answers))
      .encode(answers, request_ids, arguments[2], code);
}

// What a function for Python returns: None where TorchServe's own code is asked.
template <typename Work>
PyObject* unless_unusual(const Work& work) {
  try {
    return work().release();
  } catch (const Unusual&) {
    Py_RETURN_NONE;
  } catch (const PendingException&) {
    return nullptr;
  }
}

}  // namespace

PyObject* decode_requests(PyObject*, PyObject* message) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(message, &buffer, PyBUF_SIMPLE) != 0) {
    return nullptr;
  }
  PyObject* requests = unless_unusual([&] {
    return Decoder({static_cast<const char*>(buffer.buf), static_cast<size_t>(buffer.len)}).batch();
  });
  PyBuffer_Release(&buffer);
  return requests;
}

PyObject* encode_answers(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 6) {
    PyErr_SetString(PyExc_TypeError,
                    "encode_answers takes answers, request_ids, message, code, context, plain_json");
    return nullptr;
  }
  return unless_unusual([&] { return encoded(arguments); });
}

}  // namespace interpool
