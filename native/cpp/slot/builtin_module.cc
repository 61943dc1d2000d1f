#include "builtin_module.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "../interpose/at_work.h"
#include "../interpose/private_copies.h"
#include "../interpose/registrations.h"
#include "../interpose/settings.h"
#include "../seam/guest_modules.h"
#include "../upstream/torch_words.h"
#include "dict_watch.h"
#include "dlsym_hook.h"
#include "function_watch.h"
#include "guarded.h"
#include "interruption.h"
#include "lent_view.h"
#include "main_thread.h"
#include "otf_messages.h"
#include "reach.h"
#include "sharing.h"
#include "tensors.h"
#include "thread_state.h"
#include "torch_python.h"
#include "watched.h"

namespace interpool {
namespace {

const StartOptions* options = nullptr;
std::atomic<bool> late{false};
std::atomic<bool> retires{false};
std::atomic<bool> claimed{false};
std::mutex claim_mutex;  // guards `claimant`; a leaf lock
std::string claimant;

// Runs `work` without this interpreter's GIL, which is held again where it throws.
template <typename Work>
void without_gil(const Work& work) {
  const GilReleased released;
  work();
}

// load_library(path: str, mode: int) -> str
//
// Loads what stands for `path` in this interpreter (its private copy, or the file
// itself when it may be shared) and returns that file's path. OSError when the
// dynamic linker refuses.
PyObject* load_library(PyObject*, PyObject* args) {
  const char* path = nullptr;
  int mode = RTLD_NOW;
  if (PyArg_ParseTuple(args, "si", &path, &mode) == 0) {
    return nullptr;
  }
  std::vector<std::string> files;
  without_gil([&] { files = options->services->private_copy(path, options->id); });
  std::string loaded;
  for (const std::string& file : files) {
    const bool shared = file == path;
    void* handle = nullptr;
    std::string refused;
    const auto open = [&] {
      // Private copies stay local: their names would shadow one another's.
      handle = dlopen(file.c_str(), RTLD_NOW | (shared ? mode : RTLD_LOCAL));
      if (handle == nullptr) {
        refused = dlerror();
      }
    };
    // Static objects of what uses Python may call it, and expect the GIL to be held, as a stock import does.
    // Nobody waits for a GIL with a lock that those take to register with torch.
    if (shared) {
      without_gil(open);
    } else {
      open();
    }
    if (handle == nullptr) {
      PyErr_SetString(PyExc_OSError, refused.c_str());
      return nullptr;
    }
    without_gil([&] {
      options->services->loaded(handle);
      const std::string name = original_name(handle);
      if (calls_dlsym(name)) {
        hook_dlsym(handle);
      }
      if (name == kTorchPython) {
        adopt_torch_python(options->id, file);
      }
    });
    loaded = file;
  }
  return PyUnicode_FromString(loaded.c_str());
}

// import_note() -> str
PyObject* import_note(PyObject*, PyObject*) {
  const std::string note = options->services->import_note();
  return PyUnicode_DecodeUTF8(note.data(), static_cast<Py_ssize_t>(note.size()), "strict");
}

// keep_import_note(note: str) -> None
PyObject* keep_import_note(PyObject*, PyObject* note) {
  const char* text = PyUnicode_AsUTF8(note);
  if (text == nullptr) {
    return nullptr;
  }
  options->services->keep_import_note(text);
  Py_RETURN_NONE;
}

// notes_folder() -> str
//
// Where what imports of torch told is kept for processes that start later; "" for nowhere.
PyObject* notes_folder(PyObject*, PyObject*) {
  return PyUnicode_DecodeFSDefault(options->services->notes_folder().c_str());
}

// noted_registrations() -> str
//
// What this interpreter has registered with torch, for repeat_registrations in another process.
PyObject* noted_registrations(PyObject*, PyObject*) {
  std::string note;
  without_gil([&] { note = interpool::noted_registrations(options->id); });
  return PyUnicode_DecodeUTF8(note.data(), static_cast<Py_ssize_t>(note.size()), "strict");
}

// repeat_registrations(note: str) -> None
PyObject* repeat_registrations(PyObject*, PyObject* given) {
  const char* text = PyUnicode_AsUTF8(given);
  if (text == nullptr) {
    return nullptr;
  }
  without_gil([&] { interpool::repeat_registrations(text); });
  Py_RETURN_NONE;
}

// register_late(late: bool) -> None
//
// Whether a kernel that torch misses in this interpreter may be one that was left for later.
PyObject* register_late(PyObject*, PyObject* given) {
  const int truth = PyObject_IsTrue(given);
  if (truth < 0) {
    return nullptr;
  }
  late = truth != 0;
  Py_RETURN_NONE;
}

// call_fresh(function) -> its result
//
// Calls it as on a thread that has done nothing: without the caller's modes of torch's, its grad
// mode, its dispatch keys.
PyObject* call_fresh(PyObject*, PyObject* function) {
  std::optional<FreshThreadState> fresh;
  if (!thread_state_is_fresh()) {
    fresh.emplace();
  }
  return PyObject_CallNoArgs(function);
}

// start_apart(thread: threading.Thread) -> None
//
// It gets a working directory of its own, which begins as that of the calling thread.
PyObject* start_apart(PyObject*, PyObject* thread) {
  start_threads_apart(true);
  PyObject* const result = PyObject_CallMethod(thread, "start", nullptr);
  start_threads_apart(false);
  return result;
}

// interpreter_id() -> int
PyObject* interpreter_id(PyObject*, PyObject*) {
  return PyLong_FromLong(options->id);
}

// message_received() -> float
PyObject* message_received(PyObject*, PyObject*) {
  return PyFloat_FromDouble(LentView::last_received());
}

struct Mapping {
  void* address = nullptr;
  std::shared_ptr<const Snapshot> snapshot;

  ~Mapping() {
    if (address != nullptr) {
      munmap(address, snapshot->bytes);
    }
  }
};

constexpr const char* kMapping = "interpool.mapping";

void drop_mapping(PyObject* capsule) {
  delete static_cast<std::shared_ptr<Mapping>*>(PyCapsule_GetPointer(capsule, kMapping));
}

// map_archive(path: str, snapshot: int) -> (mapping, size, fd)
//
// The snapshot of that number (from the host's Package), or 0: the one of `path`.
// Maps a snapshot of the archive copy-on-write into this interpreter: pages are
// shared with every other interpreter's mapping until somebody writes to them.
PyObject* map_archive(PyObject*, PyObject* args) {
  const char* path = nullptr;
  unsigned long long number = 0;
  if (PyArg_ParseTuple(args, "sK", &path, &number) == 0) {
    return nullptr;
  }
  auto mapping = std::make_shared<Mapping>();
  without_gil([&] {
    mapping->snapshot = options->services->open_archive(path, number);
    void* address = mmap(nullptr, mapping->snapshot->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE,
                         mapping->snapshot->fd, 0);
    if (address == MAP_FAILED) {
      throw ArchiveError(std::string(path) + " cannot be mapped: " + std::strerror(errno));
    }
    mapping->address = address;
  });
  const auto size = static_cast<Py_ssize_t>(mapping->snapshot->bytes);
  const int fd = mapping->snapshot->fd;
  auto owner = std::make_unique<std::shared_ptr<Mapping>>(std::move(mapping));
  PyObject* capsule = PyCapsule_New(owner.get(), kMapping, drop_mapping);
  if (capsule == nullptr) {
    return nullptr;
  }
  owner.release();
  return Py_BuildValue("(Nni)", capsule, size, fd);
}

// The mapping that a capsule holds, or null and a Python error.
const Mapping* mapping_of(PyObject* capsule) {
  auto* owner = static_cast<std::shared_ptr<Mapping>*>(PyCapsule_GetPointer(capsule, kMapping));
  return owner == nullptr ? nullptr : owner->get();
}

// The caller's turn of Once. One that gets lost, as an interruption may lose it before the caller has it,
// ends by that.
struct OnceTurn {
  OnceTurn(std::shared_ptr<const Snapshot> of, std::string what)
      : snapshot(std::move(of)), work(std::move(what)) {}
  ~OnceTurn() { end(std::nullopt); }
  OnceTurn(const OnceTurn&) = delete;
  OnceTurn& operator=(const OnceTurn&) = delete;

  void end(const std::optional<std::string>& result) { snapshot->once.end(work, number, result); }

  const std::shared_ptr<const Snapshot> snapshot;
  const std::string work;
  uint64_t number = 0;  // nobody's
};

constexpr const char* kTurn = "interpool.turn";

void drop_turn(PyObject* capsule) {
  delete static_cast<OnceTurn*>(PyCapsule_GetPointer(capsule, kTurn));
}

// begin_once(mapping, work: str, patience: float) -> str | turn | None
//
// For what one interpreter does for all that map the same snapshot: what came of it, a turn
// if the caller is to do it and then to call end_once, None if another was still at it
// after `patience` seconds. The GIL is not held meanwhile; the caller holds the capsule.
PyObject* begin_once(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  const char* work = nullptr;
  double patience = 0;
  if (PyArg_ParseTuple(args, "Osd", &capsule, &work, &patience) == 0) {
    return nullptr;
  }
  const Mapping* mapping = mapping_of(capsule);
  if (mapping == nullptr) {
    return nullptr;
  }
  Once::Answer answer;
  std::unique_ptr<OnceTurn> turn;
  without_gil([&] {
    turn = std::make_unique<OnceTurn>(mapping->snapshot, work);
    answer = mapping->snapshot->once.begin(work, std::chrono::milliseconds(int64_t(patience * 1000)));
    turn->number = answer.number;
  });
  switch (answer.turn) {
    case Once::Turn::kDone:
      return PyUnicode_FromStringAndSize(answer.result.data(), static_cast<Py_ssize_t>(answer.result.size()));
    case Once::Turn::kBusy:
      Py_RETURN_NONE;
    case Once::Turn::kYours:
      break;
  }
  PyObject* mine = PyCapsule_New(turn.get(), kTurn, drop_turn);
  if (mine != nullptr) {
    static_cast<void>(turn.release());
  }
  return mine;
}

// end_once(turn, result: str | None) -> None
//
// Of begin_once. None: it was not done, and is the next caller's to do.
PyObject* end_once(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  const char* result = nullptr;
  if (PyArg_ParseTuple(args, "Oz", &capsule, &result) == 0) {
    return nullptr;
  }
  auto* turn = static_cast<OnceTurn*>(PyCapsule_GetPointer(capsule, kTurn));
  if (turn == nullptr) {
    return nullptr;
  }
  std::optional<std::string> found;
  if (result != nullptr) {
    found = result;
  }
  without_gil([&] { turn->end(found); });
  Py_RETURN_NONE;
}

// mapped_bytes(mapping, offset: int, bytes: int) -> torch.Tensor
//
// uint8, 1-D, over the mapping, which lives as long as the tensor.
PyObject* mapped_bytes(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  Py_ssize_t offset = 0;
  Py_ssize_t bytes = 0;
  if (PyArg_ParseTuple(args, "Onn", &capsule, &offset, &bytes) == 0) {
    return nullptr;
  }
  auto* owner = static_cast<std::shared_ptr<Mapping>*>(PyCapsule_GetPointer(capsule, kMapping));
  if (owner == nullptr) {
    return nullptr;
  }
  const Mapping& mapping = **owner;
  const auto size = static_cast<Py_ssize_t>(mapping.snapshot->bytes);
  if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset) {
    PyErr_Format(PyExc_ValueError, "bytes %zd to %zd lie outside of an archive of %zd bytes", offset,
                 offset + bytes, size);
    return nullptr;
  }
  return wrap_tensor(
             tensor_over(static_cast<char*>(mapping.address) + offset, static_cast<size_t>(bytes), *owner))
      .release();
}

// module_source(name: str) -> tuple[str, bool] | None
//
// What the pool was given as that module's source, and whether it has submodules.
PyObject* module_source(PyObject*, PyObject* args) {
  const char* name = nullptr;
  if (PyArg_ParseTuple(args, "s", &name) == 0) {
    return nullptr;
  }
  std::optional<Services::ModuleSource> source;
  without_gil([&] { source = options->services->module_source(name, options->id); });
  if (!source.has_value()) {
    Py_RETURN_NONE;
  }
  return Py_BuildValue("(s#O)", source->text.data(), static_cast<Py_ssize_t>(source->text.size()),
                       source->package ? Py_True : Py_False);
}

// want_anomaly_mode(wanted: bool) -> None: autograd's anomaly mode, without its search
// for NaNs, is on in this process while any interpreter wants it.
PyObject* want_anomaly_mode(PyObject*, PyObject* wanted) {
  const int yes = PyObject_IsTrue(wanted);
  if (yes < 0) {
    return nullptr;
  }
  want_anomaly(yes != 0);
  Py_RETURN_NONE;
}

// share_storages(key: str, tensors: list[Tensor] | None, excluded: list[int], at_least: int,
//                tick: Callable[[], object]) -> (storages, bytes, private storages, private bytes)
//
// See sharing.h. OSError when there is no memory: nothing has been moved then.
PyObject* share(PyObject*, PyObject* args) {
  const char* key = nullptr;
  PyObject* tensors = nullptr;
  PyObject* excluded = nullptr;
  Py_ssize_t at_least = 0;
  PyObject* tick = nullptr;
  if (PyArg_ParseTuple(args, "sOO!nO", &key, &tensors, &PyList_Type, &excluded, &at_least, &tick) == 0) {
    return nullptr;
  }
  if (tensors != Py_None && PyList_Check(tensors) == 0) {
    PyErr_SetString(PyExc_TypeError, "the tensors must be a list, or None for all");
    return nullptr;
  }
  SharingRequest request;
  request.key = key;
  request.tensors = tensors == Py_None ? nullptr : tensors;
  request.at_least = static_cast<size_t>(at_least);
  request.tick = tick;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(excluded); ++i) {
    const size_t address = PyLong_AsSize_t(PyList_GET_ITEM(excluded, i));
    if (PyErr_Occurred() != nullptr) {
      return nullptr;
    }
    request.excluded.insert(address);
  }
  const Sharing shared = share_storages(*options->services, request);
  return Py_BuildValue("(KKKK)", static_cast<unsigned long long>(shared.storages),
                       static_cast<unsigned long long>(shared.bytes),
                       static_cast<unsigned long long>(shared.private_storages),
                       static_cast<unsigned long long>(shared.private_bytes));
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) noexcept {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// call_interruptible(function, *arguments) -> its result
//
// A model's code, which may be interrupted, if this thread works for a call that can be: what
// serves the model is never interrupted itself. CallInterrupted, also if that was asked for before.
PyObject* call_interruptible(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "a function is needed");
    return nullptr;
  }
  if (!shield_call(false)) {
    shield_call(true);  // for what serves the model, which goes on
    PyErr_SetNone(call_interrupted());
    return nullptr;
  }
  PyObject* const result =
      PyObject_Vectorcall(arguments[0], arguments + 1, static_cast<size_t>(count - 1), nullptr);
  shield_call(true);
  return result;
}

// retire_interpreter() -> None
//
// Nobody leases this interpreter again after who has it now.
PyObject* retire_interpreter(PyObject*, PyObject*) {
  retires = true;
  Py_RETURN_NONE;
}

// claim_interpreter(affinity) -> None
//
// Nobody but that model leases this interpreter again after who has it now, and that model no other one.
PyObject* claim_interpreter(PyObject*, PyObject* affinity) {
  const char* const text = PyUnicode_AsUTF8(affinity);
  if (text == nullptr) {
    return nullptr;
  }
  const std::lock_guard lock(claim_mutex);
  claimant = text;
  claimed = true;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"load_library", guarded<load_library>, METH_VARARGS, "load_library(path, mode) -> path loaded"},
    {"import_note", guarded<import_note>, METH_NOARGS, "import_note() -> str"},
    {"keep_import_note", guarded<keep_import_note>, METH_O, "keep_import_note(note) -> None"},
    {"notes_folder", guarded<notes_folder>, METH_NOARGS, "notes_folder() -> str"},
    {"noted_registrations", guarded<noted_registrations>, METH_NOARGS, "noted_registrations() -> str"},
    {"repeat_registrations", guarded<repeat_registrations>, METH_O, "repeat_registrations(note) -> None"},
    {"register_late", guarded<register_late>, METH_O, "register_late(late) -> None"},
    {"start_apart", guarded<start_apart>, METH_O, "start_apart(thread) -> None"},
    {"call_fresh", guarded<call_fresh>, METH_O, "call_fresh(function) -> its result"},
    {"call_interruptible", fast(guarded<call_interruptible>), METH_FASTCALL,
     "call_interruptible(function, *arguments) -> its result"},
    {"watch_dicts", guarded<watch_dicts>, METH_VARARGS, "watch_dicts(dicts, values) -> watch"},
    {"changed_dicts", guarded<changed_dicts>, METH_O, "changed_dicts(watch) -> list of (place, bindings)"},
    {"claim_interpreter", guarded<claim_interpreter>, METH_O, "claim_interpreter(affinity) -> None"},
    {"retire_interpreter", guarded<retire_interpreter>, METH_NOARGS, "retire_interpreter() -> None"},
    {"interpreter_id", guarded<interpreter_id>, METH_NOARGS, "interpreter_id() -> int"},
    {"message_received", guarded<message_received>, METH_NOARGS, "message_received() -> seconds"},
    {"map_archive", guarded<map_archive>, METH_VARARGS, "map_archive(path, snapshot) -> (mapping, size, fd)"},
    {"begin_once", guarded<begin_once>, METH_VARARGS,
     "begin_once(mapping, work, patience) -> str, turn or None"},
    {"end_once", guarded<end_once>, METH_VARARGS, "end_once(turn, result) -> None"},
    {"mapped_bytes", guarded<mapped_bytes>, METH_VARARGS, "mapped_bytes(mapping, offset, bytes) -> Tensor"},
    {"module_source", guarded<module_source>, METH_VARARGS, "module_source(name) -> (text, package) or None"},
    {"share_storages", guarded<share>, METH_VARARGS,
     "share_storages(key, tensors, excluded, at_least, tick) -> counts"},
    {"decode_requests", fast(guarded<decode_requests>), METH_FASTCALL,
     "decode_requests(message, plain_json) -> list[dict] or None"},
    {"take_requests", fast(guarded<take_requests>), METH_FASTCALL,
     "take_requests(message, plain_json, processor) -> (processors, inputs, request_ids) or None"},
    {"encode_answers", fast(guarded<encode_answers>), METH_FASTCALL,
     "encode_answers(answers, request_ids, message, code, context, plain_json, plain_context)"
     " -> bytearray or None"},
    {"watched", guarded<watched>, METH_VARARGS,
     "watched(*pairs) -> whether all are as they were, when called"},
    {"find_models_objects", guarded<find_models_objects>, METH_VARARGS,
     "find_models_objects(namespaces, globals, modules, keepers, archives, most) -> list[(place, name, "
     "object)]"},
    {"watch_functions", guarded<watch_functions>, METH_VARARGS, "watch_functions(namespaces) -> watch"},
    {"exchanged_functions", guarded<exchanged_functions>, METH_O,
     "exchanged_functions(watch) -> list of functions"},
    {"want_anomaly_mode", guarded<want_anomaly_mode>, METH_O, "want_anomaly_mode(wanted) -> None"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          guest::kBuiltinModule,
                          "The process around this interpreter.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

PyObject* create() {
  PyObject* const module = PyModule_Create(&definition);
  if (module == nullptr || PyModule_AddObjectRef(module, "CallInterrupted", call_interrupted()) == 0) {
    return module;
  }
  Py_DECREF(module);
  return nullptr;
}

}  // namespace

bool registers_late() {
  return late;
}

bool wants_to_retire() {
  return retires;
}

std::optional<std::string> take_claim() {
  if (!claimed) {
    return std::nullopt;
  }
  const std::lock_guard lock(claim_mutex);
  claimed = false;
  return std::exchange(claimant, {});
}

void add_builtin_module(const StartOptions& given) {
  options = &given;
  prepare_dlsym_hook(given.libpython, given.symbol_prefix);
  PyImport_AppendInittab(guest::kBuiltinModule, create);
}

}  // namespace interpool
