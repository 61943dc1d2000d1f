#include "libraries.h"

#include <dlfcn.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "../interpose/private_copies.h"
#include "../interpose/registrations.h"
#include "../upstream/torch_words.h"
#include "builtin_module.h"
#include "dlsym_hook.h"
#include "guarded.h"
#include "torch_python.h"

namespace interpool {
namespace {

std::atomic<bool> has_deferred{false};

// load_library(path: str, mode: int) -> str
//
// Loads what stands for `path` in this interpreter: its private copy, or the file itself if it may be shared.
// Returns that file's path. OSError if the dynamic linker refuses.
PyObject* load_library(PyObject*, PyObject* args) {
  const char* path = nullptr;
  int mode = RTLD_NOW;
  if (PyArg_ParseTuple(args, "si", &path, &mode) == 0) {
    return nullptr;
  }
  std::vector<std::string> files;
  without_gil([&] { files = start_options().services->private_copy(path, start_options().id); });
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
    // No thread waits for a GIL with a lock that those take to register with torch.
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
      start_options().services->loaded(handle);
      const std::string name = original_name(handle);
      if (calls_dlsym(name)) {
        hook_dlsym(handle);
      }
      if (name == kTorchPython) {
        adopt_torch_python(start_options().id, file);
      }
    });
    loaded = file;
  }
  return PyUnicode_FromString(loaded.c_str());
}

PyObject* import_note(PyObject*, PyObject*) {
  const std::string note = start_options().services->import_note();
  return PyUnicode_DecodeUTF8(note.data(), static_cast<Py_ssize_t>(note.size()), "strict");
}

PyObject* keep_import_note(PyObject*, PyObject* note) {
  const char* text = PyUnicode_AsUTF8(note);
  if (text == nullptr) {
    return nullptr;
  }
  start_options().services->keep_import_note(text);
  Py_RETURN_NONE;
}

// The folder in which notes of imports of torch are kept for later processes; "" if there is none.
PyObject* notes_folder(PyObject*, PyObject*) {
  return PyUnicode_DecodeFSDefault(start_options().services->notes_folder().c_str());
}

// What this interpreter has registered with torch, for repeat_registrations in another process.
PyObject* noted_registrations(PyObject*, PyObject*) {
  std::string note;
  without_gil([&] { note = interpool::noted_registrations(start_options().id); });
  return PyUnicode_DecodeUTF8(note.data(), static_cast<Py_ssize_t>(note.size()), "strict");
}

PyObject* repeat_registrations(PyObject*, PyObject* given) {
  const char* text = PyUnicode_AsUTF8(given);
  if (text == nullptr) {
    return nullptr;
  }
  without_gil([&] { interpool::repeat_registrations(text); });
  Py_RETURN_NONE;
}

// register_deferred(deferred: bool) -> None
//
// Whether a kernel that torch misses in this interpreter may be one whose import is deferred.
PyObject* register_deferred(PyObject*, PyObject* given) {
  const int truth = PyObject_IsTrue(given);
  if (truth < 0) {
    return nullptr;
  }
  has_deferred = truth != 0;
  Py_RETURN_NONE;
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
  without_gil([&] { source = start_options().services->module_source(name, start_options().id); });
  if (!source.has_value()) {
    Py_RETURN_NONE;
  }
  return Py_BuildValue("(s#O)", source->text.data(), static_cast<Py_ssize_t>(source->text.size()),
                       source->package ? Py_True : Py_False);
}

PyMethodDef library_methods[] = {
    {"load_library", guarded<load_library>, METH_VARARGS, "load_library(path, mode) -> path loaded"},
    {"import_note", guarded<import_note>, METH_NOARGS, "import_note() -> str"},
    {"keep_import_note", guarded<keep_import_note>, METH_O, "keep_import_note(note) -> None"},
    {"notes_folder", guarded<notes_folder>, METH_NOARGS, "notes_folder() -> str"},
    {"noted_registrations", guarded<noted_registrations>, METH_NOARGS, "noted_registrations() -> str"},
    {"repeat_registrations", guarded<repeat_registrations>, METH_O, "repeat_registrations(note) -> None"},
    {"register_deferred", guarded<register_deferred>, METH_O, "register_deferred(deferred) -> None"},
    {"module_source", guarded<module_source>, METH_VARARGS, "module_source(name) -> (text, package) or None"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyMethodDef* library_functions() {
  return library_methods;
}

bool registers_deferred() {
  return has_deferred;
}

}  // namespace interpool
