#include "dict_version.h"

#include <unordered_map>

#include "../upstream/cpython_types.h"

namespace interpool {

#if PY_VERSION_HEX < 0x030E0000

DictVersion::DictVersion(Ref dict) : dict_(std::move(dict)), number_(version_of_dict(dict_.get())) {}

DictVersion::~DictVersion() = default;

#else

namespace {

struct Changes {
  uint64_t count = 0;
  unsigned users = 0;  // of this entry; CPython knows one watcher for all
};

// Entries stay where they are. Never destroyed: dictionaries change until the process ends.
std::unordered_map<PyObject*, Changes>& changes() {
  static auto* const of_dicts = new std::unordered_map<PyObject*, Changes>;
  return *of_dicts;
}

// CPython calls it before it changes a dictionary. It may run no Python code.
int count_change(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
  if (const auto found = changes().find(dict); found != changes().end()) {
    ++found->second.count;
  }
  return 0;
}

// An interpreter has eight, two of them its own.
int watcher() {
  static int id = -1;
  if (id < 0) {
    id = PyDict_AddWatcher(count_change);
    done(id);
  }
  return id;
}

}  // namespace

DictVersion::DictVersion(Ref dict) : dict_(std::move(dict)) {
  done(PyDict_Watch(watcher(), dict_.get()));
  Changes& own = changes()[dict_.get()];
  ++own.users;
  number_ = &own.count;
}

DictVersion::~DictVersion() {
  if (number_ == nullptr) {
    return;
  }
  const auto found = changes().find(dict_.get());
  if (--found->second.users == 0) {
    changes().erase(found);
    if (PyDict_Unwatch(watcher(), dict_.get()) != 0) {
      PyErr_WriteUnraisable(dict_.get());
    }
  }
}

#endif

}  // namespace interpool
