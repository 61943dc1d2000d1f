#include "watched.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "../upstream/cpython_types.h"
#include "guarded.h"

namespace interpool {
namespace {

struct Attribute {
  Ref owner;
  Ref name;
  Ref value;
};

struct Class {
  PyTypeObject* type;  // an attribute's owner
  unsigned version;    // with which its attributes were compared
};

struct Watch {
  std::vector<Attribute> attributes;
  std::vector<Class> classes;
};

struct WatchObject {
  PyObject_HEAD Watch* watch;
};

PyTypeObject* as_class(const Ref& owner) {
  return PyType_Check(owner.get()) != 0 ? reinterpret_cast<PyTypeObject*>(owner.get()) : nullptr;
}

// Null, with nothing pending, if there is none.
Ref attribute_of(PyObject* owner, PyObject* name) {
  if (PyModule_CheckExact(owner) != 0) {
    Ref found = borrow(PyDict_GetItemWithError(PyModule_GetDict(owner), name));
    if (found) {
      return found;
    }
  } else {
    Ref found = steal(PyObject_GetAttr(owner, name));
    if (found) {
      return found;
    }
  }
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_AttributeError) == 0) {
    throw PendingException();
  }
  PyErr_Clear();
  return {};
}

bool classes_unchanged(const Watch& watch) {
  return std::all_of(watch.classes.begin(), watch.classes.end(), [](const Class& one) {
    return one.version != 0 && version_of(one.type) == one.version;
  });
}

bool unchanged(Watch& watch) {
  const bool classes_too = !classes_unchanged(watch);
  for (const Attribute& one : watch.attributes) {
    const bool looked_at = classes_too || as_class(one.owner) == nullptr;
    if (looked_at && attribute_of(one.owner.get(), one.name.get()).get() != one.value.get()) {
      return false;
    }
  }
  if (classes_too) {
    for (Class& one : watch.classes) {
      one.version = version_of(one.type);  // looking at an attribute gave it one
    }
  }
  return true;
}

PyObject* call(PyObject* self, PyObject*, PyObject*) {
  return PyBool_FromLong(unchanged(*reinterpret_cast<WatchObject*>(self)->watch) ? 1 : 0);
}

void dealloc_watch(PyObject* self) {
  delete reinterpret_cast<WatchObject*>(self)->watch;
  Py_TYPE(self)->tp_free(self);
}

PyTypeObject* watch_type() {
  static PyTypeObject type = [] {
    PyTypeObject made{};
    made.ob_base = {PyObject_HEAD_INIT(nullptr) 0};
    made.tp_name = "watched";
    made.tp_basicsize = sizeof(WatchObject);
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_dealloc = dealloc_watch;
    made.tp_call = guarded<call>;
    return made;
  }();
  done(PyType_Ready(&type));
  return &type;
}

}  // namespace

PyObject* watched(PyObject*, PyObject* pairs) {
  auto watch = std::make_unique<Watch>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* owner = nullptr;
    PyObject* name = nullptr;
    PyObject* pair = PyTuple_GET_ITEM(pairs, i);
    if (PyTuple_Check(pair) == 0) {
      PyErr_SetString(PyExc_TypeError, "watched takes pairs of an object and a name");
      return nullptr;
    }
    if (PyArg_ParseTuple(pair, "OU", &owner, &name) == 0) {
      return nullptr;
    }
    Ref value = attribute_of(owner, name);
    watch->attributes.push_back({borrow(owner), borrow(name), std::move(value)});
    if (PyTypeObject* type = as_class(watch->attributes.back().owner)) {
      const bool known = std::any_of(watch->classes.begin(), watch->classes.end(),
                                     [type](const Class& one) { return one.type == type; });
      if (!known) {
        watch->classes.push_back({type, 0});
      }
    }
  }
  auto* made = PyObject_New(WatchObject, watch_type());
  if (made == nullptr) {
    return nullptr;
  }
  made->watch = watch.release();
  return reinterpret_cast<PyObject*>(made);
}

}  // namespace interpool
