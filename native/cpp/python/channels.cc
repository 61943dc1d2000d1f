#include "channels.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <interpool/errors.h>

#include "../core/channel.h"
#include "host_gil.h"

namespace py = pybind11;

namespace interpool {
namespace {

constexpr char kPredict = 'I';
constexpr int32_t kEndOfList = -1;

std::string_view bytes_of(PyObject* object) {
  if (PyBytes_Check(object) == 0) {
    throw py::type_error(std::string("a request's parts are bytes, not ") + Py_TYPE(object)->tp_name);
  }
  return {PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object))};
}

// ---- requests -----------------------------------------------------------------------------------

// A batch as TorchServe's frontend writes it.
class Batch {
 public:
  explicit Batch(const py::list& requests) : bytes_(std::make_shared<std::string>()) {
    reserve(requests);
    bytes_->push_back(kPredict);
    for (const py::handle request : requests) {
      add(py::cast<py::tuple>(request));
    }
    write_int(kEndOfList);
  }

  std::vector<std::string_view> ids() const {
    std::vector<std::string_view> ids;
    ids.reserve(ids_.size());
    for (const auto& [begin, size] : ids_) {
      ids.push_back(std::string_view(*bytes_).substr(begin, size));
    }
    return ids;
  }
  std::shared_ptr<const std::string> take() { return std::move(bytes_); }

 private:
  void add(const py::tuple& request) {
    const py::object id = request[0];
    const std::string_view name = bytes_of(id.ptr());
    ids_.emplace_back(bytes_->size() + sizeof(int32_t), name.size());
    write(name);
    for (const auto& [key, value] : py::cast<py::dict>(request[1])) {
      write(bytes_of(key.ptr()));
      if (py::isinstance<py::str>(value)) {
        write(py::cast<std::string_view>(value));
      } else {
        write_text(bytes_of(value.ptr()));
      }
    }
    write_int(kEndOfList);
    for (const py::handle each : py::cast<py::list>(request[2])) {
      for (const py::handle part : py::cast<py::tuple>(each)) {  // name, content type, value
        write(bytes_of(part.ptr()));
      }
    }
    write_int(kEndOfList);
  }

  // Room for the values, which may be large, and a little for the rest.
  void reserve(const py::list& requests) {
    size_t expected = 16;
    for (const py::handle request : requests) {
      expected += 1024;
      for (const py::handle each : py::cast<py::list>(py::cast<py::tuple>(request)[2])) {
        const py::object value = py::cast<py::tuple>(each)[2];
        expected += bytes_of(value.ptr()).size() + 128;
      }
    }
    bytes_->reserve(expected);
  }

  void write(std::string_view bytes) {
    if (bytes.size() > INT32_MAX) {
      throw ArgumentError("a request's part has " + std::to_string(bytes.size()) + " bytes, and at most " +
                          std::to_string(INT32_MAX) + " can be");
    }
    write_int(static_cast<int32_t>(bytes.size()));
    bytes_->append(bytes);
  }

  // A header's value, which TorchServe sends in UTF-8, and HTTP in Latin-1.
  void write_text(std::string_view latin) {
    size_t wide = 0;
    for (const char each : latin) {
      wide += static_cast<unsigned char>(each) >> 7;
    }
    if (wide == 0) {
      write(latin);
      return;
    }
    std::string text;
    text.reserve(latin.size() + wide);
    for (const char each : latin) {
      const auto code = static_cast<unsigned char>(each);
      if (code < 0x80) {
        text.push_back(each);
      } else {
        text.push_back(static_cast<char>(0xC0 | code >> 6));
        text.push_back(static_cast<char>(0x80 | (code & 0x3F)));
      }
    }
    write(text);
  }

  void write_int(int32_t value) {
    const auto bits = static_cast<uint32_t>(value);
    const char raw[] = {static_cast<char>(bits >> 24), static_cast<char>(bits >> 16),
                        static_cast<char>(bits >> 8), static_cast<char>(bits)};
    bytes_->append(raw, sizeof raw);
  }

  std::shared_ptr<std::string> bytes_;
  std::vector<std::pair<size_t, size_t>> ids_;  // where they begin, and their sizes
};

// ---- answers ------------------------------------------------------------------------------------

// Reads an answer as a worker writes it; Error if it is none.
class Reply {
 public:
  explicit Reply(std::string_view bytes) : bytes_(bytes) {}

  // (code, message, [(request id, content type, status, [(header's name, value)], body)])
  py::tuple read() {
    const int32_t code = integer();
    py::bytes message = field();
    py::list predictions;
    for (int32_t length = integer(); length != kEndOfList; length = integer()) {
      predictions.append(prediction(length));
    }
    return py::make_tuple(code, std::move(message), std::move(predictions));
  }

 private:
  py::tuple prediction(int32_t id_length) {
    py::bytes id = take(id_length);
    py::bytes content_type = field();
    const int32_t status = integer();
    take(integer());  // its phrase, for which ASGI has no place
    const int32_t count = integer();
    py::list headers;
    for (int32_t i = 0; i < count; ++i) {
      py::bytes name = field();
      headers.append(py::make_tuple(std::move(name), field()));
    }
    return py::make_tuple(std::move(id), std::move(content_type), status, std::move(headers), field());
  }

  py::bytes field() { return take(integer()); }

  py::bytes take(int32_t length) {
    const std::string_view part = part_of(length);
    return {part.data(), part.size()};
  }

  std::string_view part_of(int32_t length) {
    if (length < 0 || static_cast<size_t>(length) > bytes_.size() - at_) {
      throw Error("a worker's answer is not whole");
    }
    const std::string_view part = bytes_.substr(at_, static_cast<size_t>(length));
    at_ += part.size();
    return part;
  }

  int32_t integer() {
    uint32_t value = 0;
    for (const char byte : part_of(sizeof value)) {
      value = value << 8 | static_cast<uint8_t>(byte);
    }
    return static_cast<int32_t>(value);
  }

  const std::string_view bytes_;
  size_t at_ = 0;
};

// A channel whose worker has sent what is no answer ends, and disturbs no other one.
py::object reply_of(const Brought& item) {
  if (item.ended) {
    return py::none();
  }
  try {
    return Reply(item.bytes).read();
  } catch (const std::exception& error) {  // or there is no memory for it
    PyErr_Clear();
    std::fprintf(stderr, "interpool: a worker's connection is closed: %s\n", error.what());
    const WithoutHostGil free;
    if (const auto channel = Channel::find(item.channel)) {
      channel->close();
    }
  }
  return py::none();
}

py::list taken(ChannelInbox& inbox) {
  py::list all;
  for (const Brought& item : inbox.take()) {
    all.append(py::make_tuple(item.channel, reply_of(item)));
  }
  return all;
}

void predict(Channel& channel, const py::list& requests) {
  Batch batch(requests);
  std::vector<std::string_view> ids = batch.ids();
  const WithoutHostGil free;
  channel.ask(batch.take(), std::move(ids));
}

}  // namespace

void add_channels(py::module_& module) {
  py::class_<ChannelInbox, std::shared_ptr<ChannelInbox>>(module, "Inbox")
      .def(py::init<>())
      .def("fileno", &ChannelInbox::fd)
      .def("take", &taken);
  py::class_<Channel, std::shared_ptr<Channel>>(module, "Channel")
      .def(py::init(&Channel::open), py::arg("inbox"), py::arg("load_command"))
      .def_static("find", &Channel::find, py::arg("number"))
      .def_property_readonly("number", &Channel::number)
      .def_property_readonly("load_command",
                             [](const Channel& channel) { return py::bytes(channel.load_command()); })
      .def_property_readonly("is_closed", &Channel::is_closed)
      .def("predict", &predict, py::arg("requests"))
      .def("close", &Channel::close, py::call_guard<WithoutHostGil>());
}

}  // namespace interpool
