// interpool.native._native: the pool, for Python.
//
// Every function releases the host's GIL before it waits for an interpreter or
// enters one, so no thread ever holds two GILs.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <variant>

#include <interpool/package.h>

#include "../core/channel.h"
#include "../core/connection.h"
#include "../core/movable.h"
#include "../core/open_package.h"
#include "../core/process.h"
#include "../core/session.h"
#include "../core/stacks.h"
#include "../core/start_pool.h"
#include "../seam/apart_thread.h"
#include "../seam/guest_modules.h"
#include "awaited_calls.h"
#include "channels.h"
#include "host_gil.h"
#include "lease_wait.h"

namespace py = pybind11;
using namespace interpool;

namespace {

// A name given from Python, of any characters: pybind11's own strings refuse lone surrogates with a TypeError
// about something else.
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

py::object error_class(const Error& error) {
  return py::module_::import(guest::kErrors).attr(error.python_class());
}

py::object text_of(const std::string& bytes) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
}

void translate(std::exception_ptr pointer) {
  if (!pointer) {
    return;
  }
  try {
    std::rethrow_exception(pointer);
  } catch (const RemoteError& error) {
    const py::object type = error_class(error);
    const py::object value =
        type(text_of(error.type_name), text_of(error.text), text_of(error.traceback_text));
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const ArgumentError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const Error& error) {
    const py::object type = error_class(error);
    PyObject* value = nullptr;
    if (!error.arguments().empty()) {
      py::tuple arguments(error.arguments().size());
      for (size_t i = 0; i < error.arguments().size(); ++i) {
        arguments[i] = text_of(error.arguments()[i]);
      }
      value = PyObject_CallObject(type.ptr(), arguments.ptr());
      PyErr_Clear();  // code inside may have given it arguments that its class does not take
    }
    const py::object made =
        value != nullptr ? py::reinterpret_steal<py::object>(value) : text_of(error.what());
    PyErr_SetObject(type.ptr(), made.ptr());
  }
}

// The host's objects to values and back; its GIL is held.
Value read(const py::handle& object) {
  static auto* const pyobj = reinterpret_cast<PyTypeObject*>(py::type::of<PyObj>().ptr());  // looked up once
  if (PyObject_TypeCheck(object.ptr(), pyobj) != 0) {
    return {object.cast<const PyObj&>().reference()};
  }
  return Process::get().host().to_value(object.ptr());
}

py::object write(const Value& value) {
  return py::reinterpret_steal<py::object>(static_cast<PyObject*>(Process::get().host().from_value(value)));
}

struct Arguments {
  std::vector<Value> positional;
  Keywords named;
};

Arguments read_arguments(const py::iterable& args, const py::dict& kwargs) {
  Arguments read_all;
  read_all.positional.reserve(py::len_hint(args));
  for (const auto& argument : args) {
    read_all.positional.push_back(read(argument));
  }
  for (const auto& [borrowed_key, borrowed] : kwargs) {
    // Reading may run code that changes the dict.
    const auto key = py::reinterpret_borrow<py::object>(borrowed_key);
    const auto argument = py::reinterpret_borrow<py::object>(borrowed);
    if (!py::isinstance<py::str>(key)) {
      throw py::type_error("the names of keyword arguments are str");
    }
    read_all.named.emplace_back(read(key).as<std::string>(), read(argument));
  }
  return read_all;
}

PyObj call_kwargs(const PyObj& callable, const py::iterable& args, const py::dict& kwargs) {
  const Arguments arguments = read_arguments(args, kwargs);
  const WithoutHostGil free;
  return callable.call_kwargs(arguments.positional, arguments.named);
}

PyObj call(const PyObj& callable, const py::args& args, const py::kwargs& kwargs) {
  return call_kwargs(callable, args, kwargs);
}

py::object call_movable_kwargs(const MovableObject& movable, const py::iterable& args,
                               const py::dict& kwargs) {
  Value result;
  {
    const Arguments arguments = read_arguments(args, kwargs);
    const LeaseWait wait;
    result = movable.call_kwargs(arguments.positional, arguments.named);
  }
  return write(result);
}

py::object call_movable(const MovableObject& movable, const py::args& args, const py::kwargs& kwargs) {
  return call_movable_kwargs(movable, args, kwargs);
}

PyObj item(const PyObj& object, const py::object& key) {
  const Value value = read(key);
  const WithoutHostGil free;
  return object.item(value);
}

py::object to_value(const PyObj& object) {
  Value value;
  {
    const WithoutHostGil free;
    value = object.to_value();
  }
  return write(value);
}

const char* name_of(Pool::State state) {
  switch (state) {
    case Pool::State::kFree:
      return "free";
    case Pool::State::kLeased:
      return "leased";
    case Pool::State::kParked:
      return "parked";
    default:
      return "retired";
  }
}

py::dict describe(const Pool::Status& status) {
  py::dict entry;
  entry["interpreter"] = status.interpreter->id();
  entry["state"] = name_of(status.state);
  entry["leased"] = status.state == Pool::State::kLeased;
  entry["leases"] = status.leases;
  entry["affinities"] = status.affinities;
  const bool leased = status.state == Pool::State::kLeased;
  entry["model"] = leased && !status.model.empty() ? py::object(py::str(status.model)) : py::none();
  entry["seconds"] = leased ? py::object(py::float_(status.seconds)) : py::none();
  entry["idle"] = status.idle;
  entry["owner"] = status.owner.empty() ? py::none() : py::object(py::str(status.owner));
  return entry;
}

py::dict describe(const Pool::ModelStatus& status) {
  py::dict entry;
  entry["leases"] = status.counters.leases;
  entry["waited_s"] = status.counters.waits.seconds;
  entry["waits"] = status.counters.waits.buckets;
  entry["leased_s"] = status.counters.leased.seconds;
  entry["leased"] = status.counters.leased.buckets;
  entry["requests"] = status.counters.requests;
  entry["failed_requests"] = status.counters.failed;
  entry["waiting"] = status.waiting;
  entry["running"] = status.running;
  entry["share"] = status.share;
  entry["longest_wait_s"] = status.longest;
  return entry;
}

py::dict status_of(const Pool& pool) {
  py::list interpreters;
  for (const auto& status : pool.status()) {
    interpreters.append(describe(status));
  }
  py::dict all;
  all["interpreters"] = interpreters;
  all["waiting"] = pool.waiting();
  all["reserve"] = pool.reserve();
  all["min_size"] = pool.min_size();
  all["max_size"] = pool.max_size();
  all["growing"] = pool.is_growing();
  py::dict models;
  for (const auto& [model, status] : pool.models()) {
    models[py::str(text_of(model))] = describe(status);
  }
  all["models"] = models;
  all["time_bounds_s"] = kTimeBounds;
  all["failed_starts"] = pool.failed_starts();
  all["failure"] = text_of(pool.failure());
  return all;
}

// Which interpreter, and who has leased it: for reports on leases.
py::dict describe_lease(const Pool::Status& status) {
  py::dict entry;
  entry["interpreter"] = status.interpreter->id();
  entry["state"] = name_of(status.state);
  entry["seconds"] = status.seconds;
  entry["holder"] = status.thread;
  return entry;
}

py::list stacks_list(const Pool& pool, double patience) {
  std::vector<InterpreterStacks> all;
  {
    const WithoutHostGil free;
    all = stacks_of(pool, patience);
  }
  py::list list;
  for (const InterpreterStacks& one : all) {
    py::dict entry = describe_lease(one.status);
    entry["inside"] = one.inside;
    entry["answered"] = one.answered;
    py::list threads;
    for (const ThreadStack& thread : one.threads) {
      py::dict fields;
      fields["thread"] = thread.thread;
      fields["name"] = text_of(thread.name);
      py::list frames;
      for (const std::string& frame : thread.frames) {
        frames.append(text_of(frame));
      }
      fields["frames"] = frames;
      threads.append(fields);
    }
    entry["threads"] = threads;
    list.append(entry);
  }
  return list;
}

py::list open_lease_list(const Pool& pool, double patience) {
  std::vector<OpenLease> all;
  {
    const WithoutHostGil free;
    all = open_leases(pool, patience);
  }
  py::list list;
  for (const OpenLease& one : all) {
    py::dict entry = describe_lease(one.status);
    entry["answered"] = one.answered;
    entry["session"] = one.session;
    entry["labels"] = one.labels;
    list.append(entry);
  }
  return list;
}

// The host's Python is about to be finalised. Threads of it that come back from an
// interpreter from now on find no Python to come back to.
void leave_host() {
  Process& process = Process::get();
  if (process.is_forked()) {
    process.prepare_end();
    return;
  }
  Interpreter& host = process.host();
  {
    const WithoutHostGil free;
    process.prepare_end();
    host.close();
  }
  HostGil::close();
}

// Python functions as a provisioner, callable from any thread without the GIL. It has no
// references of its own.
Provisioner provisioner_of(py::handle copy, py::handle libpython) {
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

// What a process with a Python has beside what others have: its own Python behind the seam, and an end that
// waits for interpreters. Under the GIL.
void ready_host() {
  Process::get().host();
  static bool leaves = false;
  if (!std::exchange(leaves, true)) {
    py::module_::import("atexit").attr("register")(py::cpp_function(&leave_host));
  }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "The pool of private interpreters; see interpool.native.pool.manager.";
  py::register_exception_translator(&translate);

  module.def("threads_have_directories", &ApartThread::possible, py::call_guard<WithoutHostGil>());
  module.def(
      "prepare",
      [](std::string executable, std::string symbol_prefix, std::string torch_lib, std::string interposer,
         std::string slot_library, std::string loader, const py::object& private_copy,
         std::vector<std::string> search_path, std::string notes, const py::object& libpython_copy) {
        Installation installation{std::move(executable),  std::move(symbol_prefix), std::move(torch_lib),
                                  std::move(interposer),  std::move(slot_library),  std::move(loader),
                                  std::move(search_path), std::move(notes)};
        Provisioner provisioner = provisioner_of(private_copy, libpython_copy);
        bool prepared = false;
        {
          const WithoutHostGil free;
          prepared = Process::get().prepare(std::move(installation), std::move(provisioner));
        }
        if (prepared) {  // and the process keeps the provisioner for ever
          private_copy.inc_ref();
          libpython_copy.inc_ref();
        }
        ready_host();
      },
      py::kw_only(), py::arg("executable"), py::arg("symbol_prefix"), py::arg("torch_lib"),
      py::arg("interposer"), py::arg("slot_library"), py::arg("loader"), py::arg("private_copy"),
      py::arg("search_path"), py::arg("notes"), py::arg("libpython_copy"),
      "Loads what all interpreters share. The arguments of the first call that succeeds stand.");
  module.def(
      "prepare_from",
      [](const std::string& prepared) {
        {
          const WithoutHostGil free;
          Process::get().prepare_from(prepared);
        }
        ready_host();
        return Process::get().installation().search_path;
      },
      py::arg("prepared"),
      "The same from what `interpool prepare` wrote, as a program without a Python does. Gives sys.path.");
  module.def(
      "adopt_host_torch", [](const std::string& path) { Process::get().host().adopt_torch(path); },
      py::arg("path"), "Tells the router that the host's libtorch_python is loaded, from this file.");

  py::class_<PoolSettings>(module, "PoolSettings")
      .def(py::init([](std::optional<int64_t> min_size, std::optional<int64_t> max_size, double park_after,
                       double grace, std::vector<std::string> preload) {
             const PoolSettings settings{min_size, max_size, park_after, grace, std::move(preload)};
             check(settings);
             return settings;
           }),
           py::arg("min_size") = PoolSettings().min_size, py::arg("max_size") = PoolSettings().max_size,
           py::kw_only(), py::arg("park_after") = PoolSettings().park_after,
           py::arg("grace") = PoolSettings().grace, py::arg("preload") = PoolSettings().preload)
      .def_readonly("park_after", &PoolSettings::park_after)
      .def_readonly("grace", &PoolSettings::grace)
      .def(
          "size",
          [](const PoolSettings& settings, size_t cores) {
            const PoolSize size = size_of(settings, cores);
            return std::make_pair(size.min_size, size.max_size);
          },
          py::arg("cores"));

  py::class_<Pool, std::shared_ptr<Pool>>(module, "Pool")
      .def(py::init([](const PoolSettings& settings, const std::vector<std::string>& search_path) {
             const WithoutHostGil free;
             return start_pool(settings, search_path);
           }),
           py::arg("settings"), py::arg("search_path"))
      .def(
          "acquire",
          [](std::shared_ptr<Pool> pool, const std::string& affinity, std::optional<double> timeout,
             std::optional<double> call_limit, std::optional<int> only) {
            const LeaseWait wait;
            return Session::acquire(std::move(pool), affinity, timeout, call_limit, only);
          },
          py::arg("affinity") = "", py::arg("timeout") = py::none(), py::arg("call_limit") = py::none(),
          py::arg("only") = py::none())
      .def("resize", &Pool::resize, py::arg("min_size"), py::arg("max_size"),
           py::call_guard<WithoutHostGil>())
      .def("limit", &Pool::limit, py::arg("count"), py::call_guard<WithoutHostGil>())
      .def(
          "register_module_source",
          [](Pool& pool, const std::string& name, const std::string& source) {
            pool.module_sources().add(name, source);
          },
          py::arg("name"), py::arg("source"), py::call_guard<WithoutHostGil>())
      .def(
          "open_package",
          [](const std::shared_ptr<Pool>& pool, const std::string& path) {
            return OpenPackage::open(pool, path);
          },
          py::arg("path"), py::call_guard<WithoutHostGil>())
      .def(
          "create_movable",
          [](std::shared_ptr<Pool> pool, const py::object& dump) {
            Value value = read(dump);
            const WithoutHostGil free;
            return MovableObject(Movable::from_dump(std::move(pool), std::move(value)));
          },
          py::arg("dump"))
      .def(
          "serve",
          [](std::shared_ptr<Pool> pool, const std::variant<int, std::shared_ptr<Channel>>& asked_by,
             std::string in_module, std::string function, std::string worker, std::string affinity,
             int done_fd, bool pinned, std::optional<int64_t> share) {
            const WithoutHostGil free;
            std::shared_ptr<Wire> wire;
            if (const int* fd = std::get_if<int>(&asked_by)) {
              wire = std::make_shared<SocketWire>(*fd);
            } else {
              wire = std::get<std::shared_ptr<Channel>>(asked_by);
            }
            return Connection::serve(std::move(pool), std::move(wire),
                                     Service{std::move(in_module), std::move(function), std::move(worker),
                                             std::move(affinity), pinned, share},
                                     done_fd);
          },
          py::arg("asked_by").none(false), py::kw_only(), py::arg("module"), py::arg("function"),
          py::arg("worker"), py::arg("affinity"), py::arg("done_fd"), py::arg("pinned") = false,
          py::arg("share") = py::none())
      .def("isolate", &Pool::isolate, py::arg("affinity"), py::call_guard<WithoutHostGil>())
      .def("forget", &Pool::forget, py::arg("affinity"), py::arg("only") = py::none(),
           py::call_guard<WithoutHostGil>())
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
      .def_property_readonly("is_closed", &Pool::is_closed)
      .def_property_readonly("min_size", &Pool::min_size)
      .def_property_readonly("max_size", &Pool::max_size)
      .def("instances", &Pool::instances)
      .def("status", &status_of)
      .def("stacks", &stacks_list, py::arg("patience"))
      .def("open_leases", &open_lease_list, py::arg("patience"))
      .def("__len__", &Pool::size);

  module.def("pools", [] { return Process::get().pools(); }, "Every pool of this process, closed ones too.");
  module.def(
      "private_copy",
      [](const std::string& path, int slot) { return Process::get().private_copy(path, slot); },
      py::arg("path"), py::arg("slot"), py::call_guard<WithoutHostGil>());
  module.def("copies", [] { return Process::get().copies(); });

  py::class_<OpenPackage, std::shared_ptr<OpenPackage>>(module, "OpenPackage")
      .def_property_readonly("fd", [](const OpenPackage& package) { return package.snapshot().fd; })
      .def(
          "load_pickle",
          [](OpenPackage& package, const std::string& name, const std::string& resource) {
            const LeaseWait wait;
            return MovableObject(package.load_pickle(name, resource));
          },
          py::arg("package"), py::arg("resource"))
      .def(
          "load_binary",
          [](OpenPackage& package, const std::string& name, const std::string& resource) {
            std::string bytes;
            {
              const LeaseWait wait;
              bytes = package.load_binary(name, resource);
            }
            return py::bytes(bytes);
          },
          py::arg("package"), py::arg("resource"))
      .def(
          "acquire_session",
          [](OpenPackage& package, std::optional<double> timeout) {
            const LeaseWait wait;
            return package.acquire(timeout);
          },
          py::arg("timeout") = py::none());

  py::class_<MovableObject>(module, "MovableObject", R"(An object that any interpreter of its pool can have.

Materialised in each interpreter when it is first needed there. What
``InterpreterManager.create_movable`` made shares its tensors' memory in all
interpreters: a write in one is seen by all. What ``Package.load_pickle`` made shares
its weights' pages until one interpreter writes to them: only that one sees the write.
The object goes from all interpreters with its last reference.)")
      .def("__call__", &call_movable, R"(Call it in a free interpreter; the result as a plain value.

Tensors cross without copying, in both directions.

Raises:
    RemoteError: the object raised; carries the traceback's text.
    ConversionError: an argument or the result cannot cross.)")
      .def("call", &call_movable, "The same as calling it.")
      .def(
          "call_async",
          [](const py::object& self, const py::args& args, const py::kwargs& kwargs) {
            return py::module_::import("interpool.native.awaiting").attr("call_async")(self, *args, **kwargs);
          },
          "Call it in a free interpreter, awaited by an event loop; no thread waits.")
      .def("call_kwargs", &call_movable_kwargs, py::arg("args"), py::arg("kwargs"),
           "The same, with the arguments in an iterable and a dict.")
      .def(
          "acquire_session",
          [](const MovableObject& movable, std::optional<double> timeout, std::optional<double> call_limit) {
            const LeaseWait wait;
            return Session::acquire_for(movable.movable(), timeout, call_limit);
          },
          py::arg("timeout") = py::none(), py::arg("call_limit") = py::none(),
          R"(Lease an interpreter; the session's ``self`` is this object there.

Raises:
    LeaseTimeoutError: none became free within ``timeout`` seconds.)")
      .def(
          "unload",
          [](const MovableObject& movable, std::optional<int> interpreter_id) {
            movable.movable()->unload(interpreter_id);
          },
          py::arg("interpreter_id") = py::none(), py::call_guard<WithoutHostGil>(),
          R"(Drop the copy in that interpreter, or all copies.

The next need makes a new one, as the object was at first.)");

  add_channels(module);
  add_awaited_calls(module, {[](const py::iterable& args, const py::dict& kwargs) {
                               Arguments read_all = read_arguments(args, kwargs);
                               return std::pair(std::move(read_all.positional), std::move(read_all.named));
                             },
                             &write});

  py::class_<Connection, std::shared_ptr<Connection>>(module, "Connection")
      .def("close", &Connection::close, py::call_guard<WithoutHostGil>())
      .def_property_readonly("alive", &Connection::alive)
      .def_property_readonly("running", &Connection::running)
      .def_property_readonly("requests", &Connection::requests)
      .def("interrupt", &Connection::interrupt, py::call_guard<WithoutHostGil>())
      .def_property_readonly("importing", &Connection::importing)
      .def_property_readonly("where",
                             [](const Connection& connection) { return text_of(connection.where()); })
      .def("give_up", &Connection::give_up, py::call_guard<WithoutHostGil>())
      .def_property_readonly(
          "load_command", [](const Connection& connection) { return py::bytes(connection.load_command()); })
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
      .def_property_readonly("self",
                             [](Session& session) {
                               const WithoutHostGil free;
                               return session.self();
                             })
      .def(
          "from_movable",
          [](Session& session, const MovableObject& movable) {
            return session.from_movable(movable.movable());
          },
          py::arg("movable"), py::call_guard<WithoutHostGil>())
      .def("is_owner", &Session::is_owner, py::arg("obj"))
      .def(
          "create_movable",
          [](Session& session, const PyObj& object) { return MovableObject(session.create_movable(object)); },
          py::arg("obj"), py::call_guard<WithoutHostGil>())
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
      .def("call", &call)
      .def("call_kwargs", &call_kwargs, py::arg("args"), py::arg("kwargs"))
      .def(
          "attr", [](const PyObj& object, const Name& name) { return object.attr(name.utf8); },
          py::arg("name"), py::call_guard<WithoutHostGil>())
      .def(
          "has_attr", [](const PyObj& object, const Name& name) { return object.has_attr(name.utf8); },
          py::arg("name"), py::call_guard<WithoutHostGil>())
      .def("item", &item, py::arg("key"))
      .def("__getitem__", &item, py::arg("key"))
      .def("to_value", &to_value)
      .def_property_readonly("session", &PyObj::session)
      .def_property_readonly("interpreter_id", &PyObj::interpreter_id);
}
