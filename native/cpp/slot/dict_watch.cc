#include "dict_watch.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "dict_version.h"

namespace interpool {
namespace {

constexpr const char* kDictWatch = "interpool.dict_watch";

struct Binding {
  Ref name;
  Ref value;
};

struct Version {
  const uint64_t* now;
  uint64_t seen;
};

struct Watched {
  DictVersion version;
  std::vector<Binding> bindings;
};

// Thousands of dictionaries are asked before each request of another model. So their versions lie by
// themselves: what is read between two requests should stay in the core's caches.
struct Watch {
  std::vector<Version> versions;
  std::vector<Watched> dicts;  // in the same order
};

// Functions, classes, and what C code provides; no instance, which may be a state that changes.
bool is_code(PyObject* value) {
  return PyFunction_Check(value) != 0 || PyCFunction_Check(value) != 0 || PyType_Check(value) != 0 ||
         Py_TYPE(value) == &PyMethodDescr_Type || Py_TYPE(value) == &PyWrapperDescr_Type;
}

void drop_watch_of_dict(PyObject* capsule) {
  delete static_cast<Watch*>(PyCapsule_GetPointer(capsule, kDictWatch));
}

}  // namespace

PyObject* watch_dicts(PyObject*, PyObject* args) {
  PyObject* dicts = nullptr;
  int values = 0;
  if (PyArg_ParseTuple(args, "O!p", &PyList_Type, &dicts, &values) == 0) {
    return nullptr;
  }
  auto watch = std::make_unique<Watch>();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(dicts); ++i) {
    PyObject* const owner = PyList_GET_ITEM(dicts, i);
    PyObject* const dict = PyType_Check(owner) != 0 ? reinterpret_cast<PyTypeObject*>(owner)->tp_dict : owner;
    if (PyDict_Check(dict) == 0) {
      PyErr_Format(PyExc_TypeError, "a dict or a class can be watched, and no %s", Py_TYPE(owner)->tp_name);
      return nullptr;
    }
    DictVersion version{borrow(dict)};
    watch->versions.push_back({version.number(), *version.number()});
    Watched& watched = watch->dicts.emplace_back(Watched{std::move(version), {}});
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (values != 0 && PyDict_Next(dict, &position, &name, &value) != 0) {
      if (PyUnicode_CheckExact(name) != 0 && is_code(value)) {
        watched.bindings.push_back({borrow(name), borrow(value)});
      }
    }
    watched.bindings.shrink_to_fit();
  }
  PyObject* const capsule = PyCapsule_New(watch.get(), kDictWatch, drop_watch_of_dict);
  if (capsule != nullptr) {
    static_cast<void>(watch.release());
  }
  return capsule;
}

PyObject* changed_dicts(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  int peeks = 0;
  if (PyArg_ParseTuple(args, "O|p", &capsule, &peeks) == 0) {
    return nullptr;
  }
  auto* const watch = static_cast<Watch*>(PyCapsule_GetPointer(capsule, kDictWatch));
  if (watch == nullptr) {
    return nullptr;
  }
  Ref changed = steal(PyList_New(0));
  for (size_t i = 0; changed && i < watch->versions.size(); ++i) {
    Version& version = watch->versions[i];
    const uint64_t now = *version.now;
    if (now == version.seen) {
      continue;
    }
    Watched& watched = watch->dicts[i];
    if (peeks == 0) {
      version.seen = now;
    }
    const Ref names = steal(PyList_New(0));
    for (auto binding = watched.bindings.begin(); names && binding != watched.bindings.end();) {
      // Borrowed, and looked at no more.
      PyObject* const value = PyDict_GetItemWithError(watched.version.dict(), binding->name.get());
      if (value == binding->value.get()) {
        ++binding;
        continue;
      }
      const Ref was = steal(
          PyErr_Occurred() == nullptr ? PyTuple_Pack(2, binding->name.get(), binding->value.get()) : nullptr);
      if (!was || PyList_Append(names.get(), was.get()) != 0) {
        return nullptr;
      }
      binding = peeks == 0 ? watched.bindings.erase(binding) : binding + 1;
    }
    const Ref entry = steal(names ? Py_BuildValue("(nO)", static_cast<Py_ssize_t>(i), names.get()) : nullptr);
    if (!entry || PyList_Append(changed.get(), entry.get()) != 0) {
      return nullptr;
    }
  }
  return changed.release();
}

}  // namespace interpool
