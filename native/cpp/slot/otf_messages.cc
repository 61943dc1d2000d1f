#include "otf_messages.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "../upstream/cpython_types.h"
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
  PyObject* const data = text(kEnvironData);
  PyObject* const stopping_criteria = text("stopping_criteria");
  PyObject* const get_response_headers = text("get_response_headers");
  PyObject* const get_response_content_type = text("get_response_content_type");
  PyObject* const get_response_status = text("get_response_status");
  PyObject* const stream_next = text("ts_stream_next");
  PyObject* const content_type_header = text("content-type");
  PyObject* const request_processors = text("_request_processor");
  PyObject* const response_header = text("_response_header");
  PyObject* const status_code = text("_status_code");
  PyObject* const reason_phrase = text("_reason_phrase");
  PyObject* const os = made(PyImport_ImportModule("os")).release();
  PyObject* const json = made(PyImport_ImportModule("json")).release();
  // Keys of os.environ's dictionary, which are bytes; and its class.
  PyObject* const decode_wanted = made(PyBytes_FromString("TS_DECODE_INPUT_REQUEST")).release();
  PyObject* const local_rank = made(PyBytes_FromString("LOCAL_RANK")).release();
  PyObject* const environ_class = made(PyObject_GetAttrString(os, kEnvironClass)).release();
};

const Names& names() {
  static const Names all;  // in a private copy: this interpreter's
  return all;
}

// TorchServe's classes of what a context holds; in a private copy: this interpreter's.
struct Classes {
  PyObject* const module = made(PyImport_ImportModule("ts.context")).release();
  PyObject* const context = made(PyObject_GetAttrString(module, "Context")).release();
  PyObject* const processor = made(PyObject_GetAttrString(module, "RequestProcessor")).release();
  PyObject* const get_response_headers = method(names().get_response_headers);
  PyObject* const get_response_content_type = method(names().get_response_content_type);
  PyObject* const get_response_status = method(names().get_response_status);

 private:
  PyObject* method(PyObject* name) const { return made(PyObject_GetAttr(context, name)).release(); }
};

const Classes& classes() {
  static const Classes all;
  return all;
}

bool is_a(PyObject* object, PyObject* type) {
  return Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(type);
}

// os.environ.get(name): the model's own, which it may have changed.
Ref variable(PyObject* name) {
  const Ref environ = made(PyObject_GetAttr(names().os, names().environ));
  if (is_a(environ.get(), names().environ_class)) {
    const Ref data = made(PyObject_GetAttr(environ.get(), names().data));
    if (PyDict_CheckExact(data.get()) != 0) {
      PyObject* value = PyDict_GetItemWithError(data.get(), name);
      if (value == nullptr && PyErr_Occurred() != nullptr) {
        throw PendingException();
      }
      return value == nullptr ? borrow(Py_None)
                              : made(PyUnicode_FromEncodedObject(value, "utf-8", "surrogateescape"));
    }
  }
  const Ref decoded = made(PyUnicode_FromEncodedObject(name, "utf-8", nullptr));
  return made(PyObject_CallMethodOneArg(environ.get(), names().get, decoded.get()));
}

bool equals(PyObject* object, const char* ascii) {
  return PyUnicode_Check(object) != 0 && PyUnicode_CompareWithASCIIString(object, ascii) == 0;
}

// Thrown if TorchServe's own code is to do it.
struct Unusual : std::exception {};

// ---- decoding -----------------------------------------------------------------------------------

class Decoder {
 public:
  Decoder(std::string_view bytes, bool plain_json) : bytes_(bytes), plain_json_(plain_json) {}

  Ref batch() {
    begin();
    Ref requests = made(PyList_New(0));
    while (const auto id = item()) {
      append(requests, request(*id));
    }
    return requests;
  }

  Ref taken(PyObject* processor) {
    begin();
    const Ref processors = made(PyList_New(0));
    const Ref inputs = made(PyList_New(0));
    const Ref ids = made(PyDict_New());
    while (const auto id = item()) {
      const Ref index = made(PyLong_FromSsize_t(PyList_GET_SIZE(inputs.get())));
      set(ids, index.get(), decoded(*id));
      const Ref input = made(PyDict_New());
      append(processors, made(PyObject_CallOneArg(processor, take(input).get())));
      append(inputs, input);
    }
    return made(PyTuple_Pack(3, processors.get(), inputs.get(), ids.get()));
  }

 private:
  void begin() {
    if (bytes_.empty() || bytes_[0] != 'I') {
      throw Unusual();
    }
    at_ = 1;
  }

  // One request's parameters, and what its headers become: parameters' content types come first.
  Ref take(const Ref& input) {
    const size_t headers_at = at_;
    while (item()) {
      field();
    }
    Ref headers = made(PyDict_New());
    while (const auto name = item()) {
      const Ref key = decoded(*name);
      const std::string_view content_type = field();
      const Ref of_parameter = made(PyDict_New());
      set(of_parameter, names().content_type_header, decoded(content_type));
      set(input, key.get(), value(content_type, field()));
      set(headers, key.get(), of_parameter);
    }
    const size_t end = std::exchange(at_, headers_at);
    while (const auto name = item()) {
      const Ref key = decoded(*name);
      set(headers, key.get(), decoded(field()));
    }
    at_ = end;
    return headers;
  }

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
      if (!plain_json_) {
        throw Unusual();
      }
      return loaded(decoded(bytes), bytes);
    }
    if (content_type.starts_with("text") && wanted()) {
      return decoded(bytes);
    }
    return raw(bytes);
  }

  // As json.loads does, by what it calls in the end.
  static Ref loaded(const Ref& json, std::string_view bytes) {
    static PyObject* const scan = [] {
      const Ref decoder = made(PyObject_GetAttrString(names().json, kJsonDecoder));
      return made(PyObject_GetAttrString(decoder.get(), kJsonScanner)).release();
    }();
    constexpr std::string_view kSpace = " \t\n\r";
    const auto begin = static_cast<Py_ssize_t>(std::min(bytes.find_first_not_of(kSpace), bytes.size()));
    const Ref found = steal(PyObject_CallFunction(scan, "On", json.get(), begin));
    if (!found) {
      refuse();
    }
    // What follows the value is counted from the end: in characters and in bytes alike.
    const Py_ssize_t end = PyLong_AsSsize_t(PyTuple_GET_ITEM(found.get(), 1));
    const auto left = static_cast<size_t>(PyUnicode_GET_LENGTH(json.get()) - end);
    if (left > bytes.size() ||
        bytes.substr(bytes.size() - left).find_first_not_of(kSpace) != std::string_view::npos) {
      throw Unusual();
    }
    return borrow(PyTuple_GET_ITEM(found.get(), 0));
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
    Ref made = steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), nullptr));
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
  const bool plain_json_;
  size_t at_ = 0;
  std::optional<bool> wanted_;
};

// ---- encoding -----------------------------------------------------------------------------------

class Encoder {
 public:
  Encoder(PyObject* context, bool plain_json, bool plain_context, Py_ssize_t expected)
      : context_(context), plain_json_(plain_json), plain_context_(plain_context), writer_(expected) {}

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
      const Ref held_index = borrow(index);
      write_text(borrow(id).get());
      write_head(index, number);
      if (number >= PyList_GET_SIZE(answers)) {
        throw Unusual();
      }
      write_answer(borrow(PyList_GET_ITEM(answers, number)).get());
    }
    writer_.write_int(-1);  // end of list
    return writer_.take();
  }

 private:
  // What the context has of an answer.
  struct Head {
    Ref headers;
    Ref content_type;
    Ref code;
    Ref phrase;
  };

  // From TorchServe's own objects, with TorchServe's own methods; nullopt if they are others.
  std::optional<Head> plain_head(Py_ssize_t number) {
    const Ref processors = made(PyObject_GetAttr(context_, names().request_processors));
    if (PyList_CheckExact(processors.get()) == 0 || number >= PyList_GET_SIZE(processors.get())) {
      return std::nullopt;
    }
    const Ref processor = borrow(PyList_GET_ITEM(processors.get(), number));
    if (!is_a(processor.get(), classes().processor)) {
      return std::nullopt;
    }
    Head head{.headers = made(PyObject_GetAttr(processor.get(), names().response_header)),
              .content_type = {},
              .code = made(PyObject_GetAttr(processor.get(), names().status_code)),
              .phrase = made(PyObject_GetAttr(processor.get(), names().reason_phrase))};
    if (PyDict_CheckExact(head.headers.get()) == 0) {
      return std::nullopt;
    }
    PyObject* type = PyDict_GetItemWithError(head.headers.get(), names().content_type_header);
    if (type == nullptr && PyErr_Occurred() != nullptr) {
      throw PendingException();
    }
    head.content_type = borrow(type != nullptr ? type : Py_None);
    return head;
  }

  // As TorchServe asks for it.
  Head asked_head(PyObject* index) {
    Head head{
        .headers = ask(names().get_response_headers, index), .content_type = {}, .code = {}, .phrase = {}};
    head.content_type = ask(names().get_response_content_type, index);
    const Ref status = ask(names().get_response_status, index);
    if (PyTuple_CheckExact(status.get()) == 0 || PyTuple_GET_SIZE(status.get()) != 2) {
      throw Unusual();
    }
    head.code = borrow(PyTuple_GET_ITEM(status.get(), 0));
    head.phrase = borrow(PyTuple_GET_ITEM(status.get(), 1));
    return head;
  }

  // An answer's content type, status and headers.
  void write_head(PyObject* index, Py_ssize_t number) {
    std::optional<Head> plain = plain_context_ ? plain_head(number) : std::nullopt;
    const Head head = plain.has_value() ? std::move(*plain) : asked_head(index);
    PyObject* headers = head.headers.get();
    if (PyDict_CheckExact(headers) == 0) {
      throw Unusual();
    }
    PyObject* next = PyDict_GetItemWithError(headers, names().stream_next);
    if (PyErr_Occurred() != nullptr) {
      throw PendingException();
    }
    if (next != nullptr && (PyUnicode_CheckExact(next) == 0 || equals(next, "true"))) {
      throw Unusual();  // a stream ends
    }
    write_ascii(head.content_type.get());
    writer_.write_int(head.code.get() == Py_None ? 200 : integer(head.code.get()));
    write_ascii(head.phrase.get());
    writer_.write_int(size(PyDict_GET_SIZE(headers)));
    Py_ssize_t at = 0;
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    while (PyDict_Next(headers, &at, &name, &value) != 0) {
      write_text(name);
      write_text(value);
    }
  }

  // As TorchServe distinguishes types; what is left is JSON, or a tensor.
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

  static int32_t integer(PyObject* object) {
    int overflow = 1;
    const long value = PyLong_CheckExact(object) != 0 ? PyLong_AsLongAndOverflow(object, &overflow) : 0;
    if (overflow != 0 || value != static_cast<int32_t>(value)) {
      throw Unusual();
    }
    return static_cast<int32_t>(value);
  }

  PyObject* const context_;
  const bool plain_json_;
  const bool plain_context_;
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

// Whether a context's methods are its class's.
bool is_plain(PyObject* context) {
  const auto has = [context](PyObject* name, PyObject* function) {
    const Ref method = made(PyObject_GetAttr(context, name));
    return PyMethod_Check(method.get()) != 0 && PyMethod_GET_FUNCTION(method.get()) == function;
  };
  const Classes& all = classes();
  return is_a(context, all.context) && has(names().get_response_headers, all.get_response_headers) &&
         has(names().get_response_content_type, all.get_response_content_type) &&
         has(names().get_response_status, all.get_response_status);
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
  const bool plain_context = arguments[6] == Py_True && is_plain(context);
  return Encoder(context, arguments[5] == Py_True, plain_context, expected_size(answers))
      .encode(answers, request_ids, arguments[2], code);
}

// What a function for Python returns: None if TorchServe's own code is asked.
template <typename Work>
PyObject* unless_unusual(const Work& work) {
  try {
    return work().release();
  } catch (const Unusual&) {
    Py_RETURN_NONE;
  }
}

// Decodes a message by `work(decoder)`.
template <typename Work>
PyObject* decoded(PyObject* message, PyObject* plain_json, const Work& work) {
  const BufferView view(message);
  return unless_unusual([&] {
    Decoder decoder(view.text(), plain_json == Py_True);
    return work(decoder);
  });
}

bool takes(Py_ssize_t wanted, Py_ssize_t count, const char* signature) {
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "not %zd arguments: %s", count, signature);
  }
  return count == wanted;
}

}  // namespace

PyObject* decode_requests(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!takes(2, count, "decode_requests(message, plain_json)")) {
    return nullptr;
  }
  return decoded(arguments[0], arguments[1], [](Decoder& decoder) { return decoder.batch(); });
}

PyObject* take_requests(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!takes(3, count, "take_requests(message, plain_json, processor)")) {
    return nullptr;
  }
  PyObject* processor = arguments[2];
  return decoded(arguments[0], arguments[1],
                 [processor](Decoder& decoder) { return decoder.taken(processor); });
}

PyObject* encode_answers(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (!takes(7, count,
             "encode_answers(answers, request_ids, message, code, context, plain_json, plain_context)")) {
    return nullptr;
  }
  return unless_unusual([&] { return encoded(arguments); });
}

}  // namespace interpool
