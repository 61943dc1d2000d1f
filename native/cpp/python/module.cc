// interpool.native._native: the pool, for Python.
//
// Every function releases the host's GIL before it waits for an interpreter or
// enters one, so no thread ever holds two GILs.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "../core/connection.h"
#include "../core/process.h"
#include "../core/session.h"
#include "host_gil.h"

namespace py = pybind11;
using namespace interpool;

namespace {

// A name given from Python, whatever it holds: pybind11's own strings refuse lone
// surrogates with a TypeError about something else.
struct Name {
  std::string utf8;
};

}  // namespace

template <>
struct pybind11::detail::type_caster<Name> {
  PYBIND11_TYPE_CASTER(Name, const_name("str"));
  bool load(handle source, bool) {
    if (PyUnicode_Check(source.ptr()) == 0) {
      return false;
    }
    const auto bytes =
        reinterpret_steal<object>(PyUnicode_AsEncodedString(source.ptr(), "utf-8", "surrogatepass"));
    if (!bytes) {
      throw error_already_set();
    }
    value.utf8.assign(PyBytes_AS_STRING(bytes.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr())));
    return true;
  }
};

namespace {

// The class of that name in interpool.native.errors.
py::object error_class(const std::string& name) {
  return py::module_::import("interpool.native.errors").attr(name.c_str());
}

void raise(const std::string& name, const std::string& message) {
  PyErr_SetString(error_class(name).ptr(), message.c_str());
}

void translate(std::exception_ptr pointer) {
  if (!pointer) {
    return;
  }
  try {
    std::rethrow_exception(pointer);
  } catch (const RemoteError& error) {
    // interpool's own errors, raised by its code inside, arrive as themselves.
    // RemoteError itself needs more than a message.
    const std::string own = "interpool.native.errors.";
    if (error.type_name.starts_with(own) && error.type_name != own + "RemoteError") {
      const py::object errors = py::module_::import("interpool.native.errors");
      const std::string name = error.type_name.substr(own.size());
      if (py::hasattr(errors, name.c_str())) {
        raise(name, error.text);
        return;
      }
    }
    const py::object type = error_class("RemoteError");
    const auto text = [](const std::string& bytes) {
      return py::reinterpret_steal<py::object>(
          PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
    };
    const py::object value = type(text(error.type_name), text(error.text), text(error.traceback_text));
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const ProvisioningError& error) {
    raise("ProvisioningError", error.what());
  } catch (const InterpreterStartError& error) {
    raise("InterpreterStartError", error.what());
  } catch (const WrongInterpreterError& error) {
    raise("WrongInterpreterError", error.what());
  } catch (const SessionClosedError& error) {
    raise("SessionClosedError", error.what());
  } catch (const PoolClosedError& error) {
    raise("PoolClosedError", error.what());
  } catch (const LeaseTimeoutError& error) {
    raise("LeaseTimeoutError", error.what());
  } catch (const SessionError& error) {
    raise("SessionError", error.what());
  } catch (const ConversionError& error) {
    raise("ConversionError", error.what());
  } catch (const ArchiveError& error) {
    raise("ArchiveError", error.what());
  } catch (const Error& error) {
    raise("InterpoolError", error.what());
  }
}

// The host's objects to values and back; its GIL is held.
Value read(const py::handle& object) {
  if (py::isinstance<PyObj>(object)) {
    return {object.cast<const PyObj&>().reference()};
  }
  return Process::get().host().to_value(object.ptr());
}

py::object write(const Value& value) {
  return py::reinterpret_steal<py::object>(static_cast<PyObject*>(Process::get().host().from_value(value)));
}

PyObj call(const PyObj& callable, const py::args& args, const py::kwargs& kwargs) {
  std::vector<Value> positional;
  positional.reserve(args.size());
  for (const auto& argument : args) {
    positional.push_back(read(argument));
  }
  Keywords named;
  for (const auto& [key, argument] : kwargs) {
    named.emplace_back(std::get<std::string>(read(key).data), read(argument));
  }
  const WithoutHostGil free;
  return callable.call(positional, named);
}

py::object to_value(const PyObj& object) {
  Value value;
  {
    const WithoutHostGil free;
    value = object.to_value();
  }
  return write(value);
}

py::dict status_of(const Pool& pool) {
  py::list interpreters;
  for (const auto& status : pool.status()) {
    py::dict entry;
    entry["interpreter"] = status.interpreter;
    entry["leased"] = status.leased;
    entry["leases"] = status.leases;
    entry["affinities"] = status.affinities;
    interpreters.append(entry);
  }
  py::dict all;
  all["interpreters"] = interpreters;
  all["waiting"] = pool.waiting();
  return all;
}

// Keeps a snapshot while Python refers to it.
struct HeldSnapshot {
  std::shared_ptr<const Snapshot> snapshot;
};

// The host's Python is about to be finalised. Threads of it that come back from an
// interpreter from now on find no Python to come back to.
void leave_host() {
  Interpreter& host = Process::get().host();
  {
    const WithoutHostGil free;
    Process::get().leave();
    host.close();
  }
  HostGil::close();
}

// A Python function as a provisioner, callable from any thread without the GIL.
// The process keeps it for ever, so the reference is never dropped.
Provisioner provisioner_of(const py::object& private_copy, const py::object& libpython_copy) {
  const py::handle copy = py::object(private_copy).release();
  const py::handle libpython = py::object(libpython_copy).release();
  const auto guarded = [](const auto& work) {
    const WithHostGil gil;
    try {
      return work();
    } catch (const py::error_already_set& error) {
      throw ProvisioningError(error.what());
    }
  };
  return {[copy, guarded](const std::string& path, int slot) {
            return guarded([&] { return copy(path, slot).cast<std::vector<std::string>>(); });
          },
          [libpython, guarded](int slot) {
            return guarded([&] { return libpython(slot).cast<std::string>(); });
          }};
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "The pool of private interpreters; see interpool.native.manager.";
  py::register_exception_translator(&translate);

  module.def(
      "prepare",
      [](std::string executable, std::string symbol_prefix, std::string torch_lib, std::string interposer,
         std::string slot_library, std::string loader, const py::object& private_copy,
         const py::object& libpython_copy) {
        Installation installation{std::move(executable), std::move(symbol_prefix), std::move(torch_lib),
                                  std::move(interposer), std::move(slot_library),  std::move(loader)};
        Provisioner provisioner = provisioner_of(private_copy, libpython_copy);
        {
          const WithoutHostGil free;
          Process::get().prepare(std::move(installation), std::move(provisioner));
        }
        Process::get().host();
        py::module_::import("atexit").attr("register")(py::cpp_function(&leave_host));
      },
      py::kw_only(), py::arg("executable"), py::arg("symbol_prefix"), py::arg("torch_lib"),
      py::arg("interposer"), py::arg("slot_library"), py::arg("loader"), py::arg("private_copy"),
      py::arg("libpython_copy"), "Loads what all interpreters share. The first call's arguments stand.");
  module.def(
      "adopt_host_torch", [](const std::string& path) { Process::get().host().adopt_torch(path); },
      py::arg("path"), "Tells the router that the host's libtorch_python is loaded, from this file.");

  py::class_<Pool, std::shared_ptr<Pool>>(module, "Pool")
      .def(py::init([](size_t count, const std::vector<std::string>& search_path) {
             const WithoutHostGil free;
             auto pool = std::make_shared<Pool>(Process::get().start(count, search_path));
             Process::get().remember(pool);
             return pool;
           }),
           py::arg("count"), py::arg("search_path"))
      .def(
          "acquire",
          [](std::shared_ptr<Pool> pool, const std::string& affinity, std::optional<double> timeout) {
            const WithoutHostGil free;
            return Session::acquire(std::move(pool), affinity, timeout);
          },
          py::arg("affinity") = "", py::arg("timeout") = py::none())
      .def(
          "serve",
          [](std::shared_ptr<Pool> pool, int fd, std::string in_module, std::string function,
             std::string worker, std::string affinity, int done_fd) {
            return Connection::serve(
                std::move(pool), fd,
                Service{std::move(in_module), std::move(function), std::move(worker), std::move(affinity)},
                done_fd);
          },
          py::arg("fd"), py::kw_only(), py::arg("module"), py::arg("function"), py::arg("worker"),
          py::arg("affinity"), py::arg("done_fd"))
      .def("forget", &Pool::forget, py::arg("affinity"), py::call_guard<WithoutHostGil>())
      .def(
          "tell_all",
          [](Pool& pool, const std::string& in_module, const std::string& function,
             const py::object& argument) {
            const Value value = read(argument);
            const WithoutHostGil free;
            pool.tell_all(in_module, function, value);
          },
          py::arg("module"), py::arg("function"), py::arg("argument"))
      .def("close", &Pool::close, py::call_guard<WithoutHostGil>())
      .def("status", &status_of)
      .def("__len__", &Pool::size);

  py::class_<HeldSnapshot>(module, "Snapshot")
      .def_property_readonly("number", [](const HeldSnapshot& held) { return held.snapshot->number; })
      .def_property_readonly("fd", [](const HeldSnapshot& held) { return held.snapshot->fd; });
  module.def(
      "take_archive", [](const std::string& path) { return HeldSnapshot{Process::get().take_archive(path)}; },
      py::arg("path"), py::call_guard<WithoutHostGil>(), "A snapshot of the archive's file as it is now.");

  py::class_<Connection, std::shared_ptr<Connection>>(module, "Connection")
      .def("close", &Connection::close, py::call_guard<WithoutHostGil>())
      .def_property_readonly("alive", &Connection::alive)
      .def("join", &Connection::join, py::arg("timeout"), py::call_guard<WithoutHostGil>());

  py::class_<Session, std::shared_ptr<Session>>(module, "InterpreterSession")
      .def(
          "global_",
          [](Session& session, const Name& in_module, const Name& name) {
            return session.global(in_module.utf8, name.utf8);
          },
          py::arg("module"), py::arg("name"), py::call_guard<WithoutHostGil>())
      .def(
          "from_value",
          [](Session& session, const py::object& object) {
            const Value value = read(object);
            const WithoutHostGil free;
            return session.from_value(value);
          },
          py::arg("value"))
      .def("close", &Session::close, py::call_guard<WithoutHostGil>())
      .def_property_readonly("interpreter_id", &Session::interpreter_id)
      .def_property_readonly("is_open", &Session::is_open)
      .def("__enter__", [](std::shared_ptr<Session> session) { return session; })
      .def("__exit__", [](Session& session, const py::args&) {
        const WithoutHostGil free;
        session.close();
      });

  py::class_<PyObj>(module, "PyObj")
      .def("__call__", &call)
      .def(
          "attr", [](const PyObj& object, const Name& name) { return object.attribute(name.utf8); },
          py::arg("name"), py::call_guard<WithoutHostGil>())
      .def("to_value", &to_value)
      .def_property_readonly("interpreter_id",
                             [](const PyObj& object) { return object.session()->interpreter_id(); });
}
