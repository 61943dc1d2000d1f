#include "builtin_module.h"

#include <optional>

#include "../interpose/at_work.h"
#include "../interpose/settings.h"
#include "../seam/guest_modules.h"
#include "dict_watch.h"
#include "dlsym_hook.h"
#include "function_watch.h"
#include "guarded.h"
#include "interruption.h"
#include "lent_view.h"
#include "otf_messages.h"
#include "reach.h"
#include "sharing.h"
#include "thread_state.h"
#include "watched.h"

namespace interpool {
namespace {

const StartOptions* given_options = nullptr;

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

// call_noting(note, function, *arguments) -> its result
//
// What it raises is given to `note` first. Here and not in Python, so that no stack shows it.
PyObject* call_noting(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 2) {
    PyErr_SetString(PyExc_TypeError, "two functions are needed");
    return nullptr;
  }
  PyObject* const result =
      PyObject_Vectorcall(arguments[1], arguments + 2, static_cast<size_t>(count - 2), nullptr);
  if (result != nullptr) {
    return result;
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (!steal(PyObject_CallOneArg(arguments[0], value))) {
    PyErr_WriteUnraisable(arguments[0]);
  }
  PyErr_Restore(type, value, traceback);
  return nullptr;
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

PyObject* interpreter_id(PyObject*, PyObject*) {
  return PyLong_FromLong(given_options->id);
}

// message_received() -> float
PyObject* message_received(PyObject*, PyObject*) {
  return PyFloat_FromDouble(LentView::last_received());
}

// send_part(part: buffer) -> None
//
// Sends a part of the answer to the message that is being answered here. BrokenPipeError if the client takes
// no more.
PyObject* send_part(PyObject*, PyObject* part) {
  const BufferView bytes(part);
  const auto receiver = LentView::current_receiver();
  bool sent = false;
  if (receiver != nullptr) {
    const WithoutGil released;
    sent = receiver->send_part(bytes.text());
  }
  if (!sent) {
    PyErr_SetString(PyExc_BrokenPipeError, "no client waits for this answer any more");
    return nullptr;
  }
  Py_RETURN_NONE;
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

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) noexcept {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef module_methods[] = {
    {"start_apart", guarded<start_apart>, METH_O, "start_apart(thread) -> None"},
    {"call_fresh", guarded<call_fresh>, METH_O, "call_fresh(function) -> its result"},
    {"call_noting", fast(guarded<call_noting>), METH_FASTCALL,
     "call_noting(note, function, *arguments) -> its result"},
    {"call_interruptible", fast(guarded<call_interruptible>), METH_FASTCALL,
     "call_interruptible(function, *arguments) -> its result"},
    {"watch_dicts", guarded<watch_dicts>, METH_VARARGS, "watch_dicts(dicts, values) -> watch"},
    {"changed_dicts", guarded<changed_dicts>, METH_VARARGS,
     "changed_dicts(watch, peeks=False) -> list of (place, bindings)"},
    {"interpreter_id", guarded<interpreter_id>, METH_NOARGS, "interpreter_id() -> int"},
    {"message_received", guarded<message_received>, METH_NOARGS, "message_received() -> seconds"},
    {"send_part", guarded<send_part>, METH_O, "send_part(part) -> None"},
    {"share_storages", guarded<share_storages>, METH_VARARGS,
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
                          module_methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

PyObject* create() {
  PyObject* const module = PyModule_Create(&definition);
  if (module != nullptr && PyModule_AddFunctions(module, library_functions()) == 0 &&
      PyModule_AddFunctions(module, archive_functions()) == 0 &&
      PyModule_AddFunctions(module, claim_functions()) == 0 &&
      PyModule_AddObjectRef(module, "CallInterrupted", call_interrupted()) == 0) {
    return module;
  }
  Py_XDECREF(module);
  return nullptr;
}

}  // namespace

const StartOptions& start_options() {
  return *given_options;
}

void add_builtin_module(const StartOptions& given) {
  given_options = &given;
  prepare_dlsym_hook(given.libpython, given.symbol_prefix);
  PyImport_AppendInittab(guest::kBuiltinModule, create);
}

}  // namespace interpool
