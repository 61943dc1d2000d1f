#include "reach.h"

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace interpool {
namespace {

constexpr const char* kCache = "functools._lru_cache_wrapper";
constexpr const char* kSpec = "ModuleSpec";
constexpr std::string_view kLoader = "FileLoader";  // ends the names of those that importlib has
constexpr size_t kAhead = 16;                       // references whose memory is on its way to the cache

enum class Owner : uint8_t { kEnvironment, kModel, kKeeper };

// Memory that goes back to the system at once. Of what is freed to malloc, a pool's process keeps some for
// the next call (core/allocator.h).
template <typename Item>
struct Mapped {
  using value_type = Item;
  Mapped() = default;
  template <typename Other>
  Mapped(const Mapped<Other>&) {}

  Item* allocate(size_t count) {
    void* const memory =
        ::mmap(nullptr, count * sizeof(Item), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc();
    }
    return static_cast<Item*>(memory);
  }
  void deallocate(Item* memory, size_t count) noexcept { ::munmap(memory, count * sizeof(Item)); }
  bool operator==(const Mapped&) const = default;
};

// Addresses that were met. Open addressing: a node each would take ten times the memory.
class Met {
 public:
  Met() : places_(size_t{1} << 20) {}

  // Whether it was not met before.
  bool add(const void* address) {
    if (2 * (count_ + 1) > places_.size()) {
      grow();
    }
    return insert(reinterpret_cast<uintptr_t>(address));
  }

  void prefetch(const void* address) const {
    __builtin_prefetch(&places_[place_of(reinterpret_cast<uintptr_t>(address))]);
  }

 private:
  size_t place_of(uintptr_t address) const {
    return ((address >> 4) * 0x9E3779B97F4A7C15U >> 20) & (places_.size() - 1);
  }

  bool insert(uintptr_t address) {
    const size_t mask = places_.size() - 1;
    for (size_t at = place_of(address);; ++at) {
      uintptr_t& place = places_[at & mask];
      if (place == address) {
        return false;
      }
      if (place == 0) {
        place = address;
        ++count_;
        return true;
      }
    }
  }

  void grow() {
    std::vector<uintptr_t, Mapped<uintptr_t>> old(2 * places_.size());
    old.swap(places_);
    count_ = 0;
    for (const uintptr_t address : old) {
      if (address != 0) {
        insert(address);
      }
    }
  }

  std::vector<uintptr_t, Mapped<uintptr_t>> places_;
  size_t count_ = 0;
};

// Null if it is no text, or raises an error.
std::string_view text_of(PyObject* object) {
  if (object == nullptr || PyUnicode_CheckExact(object) == 0 || PyUnicode_READY(object) != 0 ||
      PyUnicode_IS_ASCII(object) == 0) {
    return {};
  }
  return {static_cast<const char*>(PyUnicode_DATA(object)),
          static_cast<size_t>(PyUnicode_GET_LENGTH(object))};
}

// Borrowed, by a key that is hashed already and whose comparison runs no code; null if there is none.
PyObject* item(PyObject* dict, PyObject* name) {
  PyObject* const found = PyDict_CheckExact(dict) != 0 ? PyDict_GetItemWithError(dict, name) : nullptr;
  PyErr_Clear();
  return found;
}

// Of an object of importlib's, whose attributes are plain: no code runs.
Ref attribute(PyObject* object, PyObject* name) {
  Ref found = steal(PyObject_GetAttr(object, name));
  PyErr_Clear();
  return found;
}

class Walk {
 public:
  Walk(PyObject* globals, PyObject* modules, PyObject* keepers, std::string_view archives, Py_ssize_t most)
      : name_(made(PyUnicode_InternFromString("__name__"))),
        module_(made(PyUnicode_InternFromString("__module__"))),
        spec_(made(PyUnicode_InternFromString("__spec__"))),
        loader_(made(PyUnicode_InternFromString("loader"))),
        scope_(made(PyUnicode_InternFromString("scope"))),
        instance_check_(made(PyUnicode_InternFromString("__instancecheck__"))),
        subclass_check_(made(PyUnicode_InternFromString("__subclasscheck__"))),
        archives_(archives),
        most_(static_cast<size_t>(most)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(globals); ++i) {
      globals_.emplace(PyList_GET_ITEM(globals, i), Owner::kModel);
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(modules); ++i) {
      if (const std::string_view name = text_of(PyList_GET_ITEM(modules, i)); !name.empty()) {
        modules_.insert(name);
      }
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keepers); ++i) {
      PyObject* const keeper = PyList_GET_ITEM(keepers, i);
      if (const std::string_view name = text_of(keeper); !name.empty()) {
        keepers_.push_back(name);
      } else {
        met_.add(keeper);
      }
    }
    met_.add(PyImport_GetModuleDict());
  }

  void run(PyObject* namespaces) {
    // All names first: what stands under one is reported by it.
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(namespaces); ++i) {
      met_.add(PyList_GET_ITEM(namespaces, i));
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(namespaces); ++i) {
      PyObject* const dict = PyList_GET_ITEM(namespaces, i);
      PyObject *name = nullptr, *value = nullptr;
      Py_ssize_t position = 0;
      while (PyDict_Check(dict) != 0 && PyDict_Next(dict, &position, &name, &value) != 0) {
        meet(value, name, i);
      }
    }
    // What is nearest to a name comes first.
    for (size_t next = 0; found_.size() < most_; ++next) {
      if (next == pending_.size()) {
        examine_ahead();
      }
      if (next == pending_.size()) {
        return;
      }
      if (next + kAhead < pending_.size()) {
        __builtin_prefetch(pending_[next + kAhead].object);
      }
      visit(Pending(pending_[next]));
    }
  }

  Ref found() const {
    Ref list = made(PyList_New(0));
    for (const Found& each : found_) {
      const Ref entry = made(Py_BuildValue("(nOO)", each.space, each.name.get(), each.object.get()));
      done(PyList_Append(list.get(), entry.get()));
    }
    return list;
  }

 private:
  // All borrowed: no code runs meanwhile that could free them.
  struct Pending {
    PyObject* object = nullptr;
    PyObject* name = nullptr;
    Py_ssize_t space = 0;
  };
  struct Found {
    Ref object;
    Ref name;
    Py_ssize_t space;
  };
  struct Following {
    Walk* walk;
    const Pending* from;
  };

  // Most of a search's time goes into reading objects that are not in the cache. So each reference waits
  // until others have followed it, while its object and its place among those met are fetched.
  void meet(PyObject* object, PyObject* name, Py_ssize_t space) {
    __builtin_prefetch(object);
    met_.prefetch(object);
    examine(std::exchange(ahead_[references_++ % kAhead], {object, name, space}));
  }

  void examine_ahead() {
    for (size_t i = 0; i < kAhead; ++i) {
      examine(std::exchange(ahead_[references_++ % kAhead], {}));
    }
  }

  void examine(const Pending& next) {
    if (next.object == nullptr) {
      return;
    }
    const bool may_be_a_models =
        PyObject_IS_GC(next.object) != 0 || PyType_HasFeature(Py_TYPE(next.object), Py_TPFLAGS_HEAPTYPE) != 0;
    if (may_be_a_models && met_.add(next.object)) {
      pending_.push_back(next);
    }
  }

  void visit(const Pending& next) {
    PyTypeObject* const type = Py_TYPE(next.object);
    const Owner owner = owner_of(next.object);
    if (owner == Owner::kModel) {
      found_.push_back({borrow(next.object), borrow(next.name), next.space});
      return;
    }
    if (owner == Owner::kKeeper || PyObject_IS_GC(next.object) == 0 || type->tp_traverse == nullptr ||
        PyFrame_Check(next.object) != 0 || std::strcmp(type->tp_name, kCache) == 0) {
      return;
    }
    if (PyDict_CheckExact(next.object) != 0) {
      visit_entries(next);
      return;
    }
    Following following{this, &next};
    type->tp_traverse(next.object, follow, &following);
    if (lacks_memory_) {
      throw std::bad_alloc();
    }
  }

  void visit_entries(const Pending& next) {
    std::array<std::pair<PyObject*, PyObject*>, kAhead> entries;
    Py_ssize_t position = 0;
    size_t count = entries.size();
    while (count == entries.size()) {
      count = 0;
      while (count < entries.size() &&
             PyDict_Next(next.object, &position, &entries[count].first, &entries[count].second) != 0) {
        __builtin_prefetch(entries[count++].first);
      }
      for (size_t i = 0; i < count; ++i) {
        const auto [key, value] = entries[i];
        if (!is_found_by_a_models_class(key)) {
          meet(key, next.name, next.space);
          meet(value, next.name, next.space);
        }
      }
    }
  }

  // Does only an object of a model's class lead to what has this key?
  bool is_found_by_a_models_class(PyObject* key) {
    if (PyTuple_CheckExact(key) != 0) {  // as libraries have that choose by two classes
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
        if (is_found_by_a_models_class(PyTuple_GET_ITEM(key, i))) {
          return true;
        }
      }
      return false;
    }
    return PyType_Check(key) != 0 && owner_of_class(reinterpret_cast<PyTypeObject*>(key)) == Owner::kModel &&
           !decides_by_itself(Py_TYPE(key));
  }

  // Do classes of this metaclass say themselves what their instances are, as abstract ones do?
  bool decides_by_itself(PyTypeObject* metaclass) const {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(metaclass->tp_mro); ++i) {
      auto* const base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(metaclass->tp_mro, i));
      if (PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE) != 0 && base->tp_dict != nullptr &&
          (item(base->tp_dict, instance_check_.get()) != nullptr ||
           item(base->tp_dict, subclass_check_.get()) != nullptr)) {
        return true;
      }
    }
    return false;
  }

  // Called by C code, through which nothing may be thrown.
  static int follow(PyObject* object, void* argument) noexcept {
    const auto& on = *static_cast<Following*>(argument);
    try {
      on.walk->meet(object, on.from->name, on.from->space);
      return 0;
    } catch (...) {
      on.walk->lacks_memory_ = true;
      return 1;
    }
  }

  Owner owner_of(PyObject* object) {
    if (PyMethod_Check(object) != 0) {
      object = PyMethod_GET_FUNCTION(object);
    }
    if (PyFunction_Check(object) != 0) {
      return owner_of_globals(PyFunction_GET_GLOBALS(object));
    }
    if (PyModule_Check(object) != 0) {
      return owner_of_globals(PyModule_GetDict(object));
    }
    auto* const type = PyType_Check(object) != 0 ? reinterpret_cast<PyTypeObject*>(object) : Py_TYPE(object);
    return owner_of_class(type);
  }

  Owner owner_of_globals(PyObject* globals) {
    const auto [place, is_new] = globals_.try_emplace(globals, Owner::kEnvironment);
    if (is_new) {
      place->second = has_scope(item(globals, spec_.get()))
                          ? Owner::kModel
                          : owner_of_name(text_of(item(globals, name_.get())), /*of_class=*/false);
    }
    return place->second;
  }

  // Was a module with this __spec__ imported from a model's directory (native/inside/module_scope.py)?
  bool has_scope(PyObject* spec) const {
    if (spec == nullptr || std::strcmp(Py_TYPE(spec)->tp_name, kSpec) != 0) {
      return false;
    }
    const Ref loader = attribute(spec, loader_.get());
    return loader && std::string_view(Py_TYPE(loader.get())->tp_name).ends_with(kLoader) &&
           static_cast<bool>(attribute(loader.get(), scope_.get()));
  }

  Owner owner_of_class(PyTypeObject* type) {
    if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) == 0 || type->tp_dict == nullptr) {
      return Owner::kEnvironment;
    }
    const auto [place, is_new] = classes_.try_emplace(type, Owner::kEnvironment);
    if (is_new) {
      place->second = owner_of_name(text_of(item(type->tp_dict, module_.get())), /*of_class=*/true);
    }
    return place->second;
  }

  Owner owner_of_name(std::string_view name, bool of_class) const {
    if (name.starts_with(archives_)) {
      return Owner::kModel;
    }
    for (const std::string_view keeper : keepers_) {
      if (name.starts_with(keeper) && (name.size() == keeper.size() || name[keeper.size()] == '.')) {
        return Owner::kKeeper;
      }
    }
    // Of functions the globals themselves decide: two modules may have one name.
    const bool is_models = modules_.contains(name) || modules_.contains(name.substr(0, name.find('.')));
    return of_class && is_models ? Owner::kModel : Owner::kEnvironment;
  }

  const Ref name_;
  const Ref module_;
  const Ref spec_;
  const Ref loader_;
  const Ref scope_;
  const Ref instance_check_;
  const Ref subclass_check_;
  const std::string_view archives_;
  const size_t most_;
  std::unordered_map<PyObject*, Owner> globals_;
  std::unordered_map<PyTypeObject*, Owner> classes_;
  std::unordered_set<std::string_view> modules_;
  std::vector<std::string_view> keepers_;
  Met met_;
  std::array<Pending, kAhead> ahead_{};
  size_t references_ = 0;
  std::vector<Pending, Mapped<Pending>> pending_;
  std::vector<Found> found_;
  bool lacks_memory_ = false;
};

}  // namespace

PyObject* find_models_objects(PyObject*, PyObject* args) {
  PyObject *namespaces = nullptr, *globals = nullptr, *modules = nullptr, *keepers = nullptr;
  const char* archives = nullptr;
  Py_ssize_t most = 0;
  if (PyArg_ParseTuple(args, "O!O!O!O!sn", &PyList_Type, &namespaces, &PyList_Type, &globals, &PyList_Type,
                       &modules, &PyList_Type, &keepers, &archives, &most) == 0) {
    return nullptr;
  }
  Walk walk(globals, modules, keepers, archives, most);
  {
    const WithoutCollector paused;
    walk.run(namespaces);
  }
  return walk.found().release();
}

}  // namespace interpool
