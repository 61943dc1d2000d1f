#include "references.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>

#include <new>
#include <vector>

#include "../upstream/cpython_types.h"
#include "torch_python.h"

namespace interpool {
namespace {

// A Python object whose references are counted.
struct Wrapper {
  Py_ssize_t from_containers = 0;
  bool in_heap = false;  // the collector knows it, and so the list of all that it knows has it
};

struct TensorOwners {
  uint32_t views = 0;  // that keep it as their base
};

struct Survey {
  std::unordered_map<c10::TensorImpl*, TensorOwners> tensors;
  std::unordered_map<PyObject*, Wrapper> wrappers;
};

uint32_t use_count(c10::intrusive_ptr_target* target) {
  return c10::raw::intrusive_ptr::use_count(target);
}

c10::StorageImpl* storage_of(const c10::TensorImpl& tensor) {
  return tensor.has_storage() ? tensor.unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

// The tensor, and what it keeps as the base that it is a view of.
void add_tensor(Survey& survey, const at::TensorBase& tensor) {
  survey.tensors.try_emplace(tensor.unsafeGetTensorImpl());
  const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (view == nullptr) {
    return;
  }
  if (view->has_bw_view()) {
    ++survey.tensors[view->get_backward_view().base_.unsafeGetTensorImpl()].views;
  }
  if (view->has_fw_view() && !view->shared_view_info()) {
    ++survey.tensors[view->get_forward_view().base_.unsafeGetTensorImpl()].views;
  }
}

int count_reference(PyObject* object, void* argument) {
  auto& wrappers = *static_cast<std::unordered_map<PyObject*, Wrapper>*>(argument);
  if (const auto found = wrappers.find(object); found != wrappers.end()) {
    ++found->second.from_containers;
  }
  return 0;
}

// What one object refers to, each counted once: too few if it refers to one twice, and never too many.
struct CountedOnce {
  std::unordered_map<PyObject*, Wrapper>& wrappers;
  std::unordered_set<PyObject*> counted;
  bool no_memory = false;
};

int count_once(PyObject* object, void* argument) {
  auto& once = *static_cast<CountedOnce*>(argument);
  try {
    return once.wrappers.contains(object) && once.counted.insert(object).second
               ? count_reference(object, &once.wrappers)
               : 0;
  } catch (const std::bad_alloc&) {
    once.no_memory = true;  // for the caller: between it and this is C code
    return -1;
  }
}

// Whether all references to an object are known. C++ has one, together, if something else than the object
// refers to what it wraps (c10/util/intrusive_ptr.h).
bool wrapper_is_known(const Survey& survey, PyObject* object, bool also_in_cpp) {
  const Wrapper& wrapper = survey.wrappers.at(object);
  return Py_REFCNT(object) == wrapper.from_containers + (wrapper.in_heap ? 1 : 0) + (also_in_cpp ? 1 : 0);
}

bool tensor_is_known(const Survey& survey, c10::TensorImpl& tensor, const TensorOwners& owners) {
  PyObject* object = tensor.pyobj_slot()->load_pyobj();
  const uint32_t uses = use_count(&tensor);
  if (uses != owners.views + (object != nullptr ? 1 : 0)) {
    return false;
  }
  return object == nullptr || wrapper_is_known(survey, object, uses > 1);
}

}  // namespace

StorageOwners find_owners(const std::function<bool(const c10::StorageImpl&)>& wanted,
                          const std::unordered_set<const c10::StorageImpl*>& held) {
  const Ref gc = checked(PyImport_ImportModule("gc"));
  const Ref heap = checked(PyObject_CallMethod(gc.get(), "get_objects", nullptr));
  const Py_ssize_t objects = PyList_GET_SIZE(heap.get());

  Survey survey;
  for (Py_ssize_t i = 0; i < objects; ++i) {
    PyObject* object = PyList_GET_ITEM(heap.get(), i);
    if (const at::Tensor* tensor = any_tensor_of(object); tensor != nullptr && tensor->defined()) {
      add_tensor(survey, *tensor);
    }
  }

  struct Storage {
    std::vector<std::pair<c10::TensorImpl*, TensorOwners>> tensors;
  };
  std::unordered_map<c10::StorageImpl*, Storage> storages;
  for (const auto& [tensor, owners] : survey.tensors) {
    c10::StorageImpl* storage = storage_of(*tensor);
    if (storage == nullptr || !wanted(*storage)) {
      continue;
    }
    storages[storage].tensors.emplace_back(tensor, owners);
    for (PyObject* object : {tensor->pyobj_slot()->load_pyobj(), storage->pyobj_slot()->load_pyobj()}) {
      if (object != nullptr) {
        survey.wrappers.try_emplace(object);
      }
    }
  }
  if (storages.empty()) {
    return {};
  }

  for (Py_ssize_t i = 0; i < objects; ++i) {
    PyObject* object = PyList_GET_ITEM(heap.get(), i);
    if (const auto found = survey.wrappers.find(object); found != survey.wrappers.end()) {
      found->second.in_heap = true;
    }
    const traverseproc traverse = Py_TYPE(object)->tp_traverse;
    if (traverse != nullptr && visits_borrowed(object)) {
      if (runs_now(object)) {
        continue;  // what it refers to has owners that are not known
      }
      CountedOnce once{survey.wrappers, {}};
      traverse(object, count_once, &once);
      if (once.no_memory) {
        throw std::bad_alloc();
      }
    } else if (traverse != nullptr) {
      traverse(object, count_reference, &survey.wrappers);
    }
  }

  StorageOwners result;
  // NOLINTNEXTLINE(bugprone-nondeterministic-pointer-iteration-order): each is judged by itself
  for (const auto& [storage, owners] : storages) {
    PyObject* object = storage->pyobj_slot()->load_pyobj();
    const uint32_t uses = use_count(storage);
    bool known = uses == owners.tensors.size() + (object != nullptr ? 1 : 0) + held.count(storage) &&
                 (object == nullptr || wrapper_is_known(survey, object, uses > 1));
    for (const auto& [tensor, holders] : owners.tensors) {
      known = known && tensor_is_known(survey, *tensor, holders);
    }
    result.emplace(storage, known);
  }
  return result;
}

}  // namespace interpool
