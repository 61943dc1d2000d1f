#include "sharing.h"

#include <malloc.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <interpool/errors.h>
#include "../seam/interpreter.h"
#include "builtin_module.h"
#include "references.h"
#include "storages.h"
#include "torch_python.h"

namespace interpool {
namespace {

struct Sharing {
  size_t storages = 0;  // that have shared memory now
  size_t bytes = 0;
  size_t private_storages = 0;  // whose address other code may have
  size_t private_bytes = 0;
};

// What is to be shared, and how.
struct SharingRequest {
  std::string key;                      // only what has the same key is compared
  PyObject* tensors = nullptr;          // a list of tensors whose memory's address has no other user; or
                                        // null: all tensors of the interpreter of which that is true
  std::unordered_set<size_t> excluded;  // addresses of StorageImpls
  size_t at_least = 0;                  // bytes of a storage
  PyObject* tick = nullptr;  // called now and then while another interpreter is waited for, so that
                             // the caller can be interrupted
};

constexpr std::chrono::milliseconds kBetweenLooks{
    200};                                        // what is waited for, between two looks at interruptions
constexpr std::chrono::milliseconds kBrief{20};  // what is waited for with the GIL held
constexpr size_t kTrim = size_t{1} << 20;        // what is worth giving back to the system

// A storage on its way.
struct Moving {
  c10::Storage storage;  // held, so that it is there without the GIL, too
  const void* data = nullptr;
  size_t bytes = 0;
  std::optional<std::optional<Content>> content;  // once it was looked at; none in there: not worth sharing
  Placement placement;
};

class Move {
 public:
  Move(Services& services, const SharingRequest& request) : services_(services), request_(request) {}

  Sharing run() {
    choose();
    while (!place()) {
      wait();
      keep_what_is_as_it_was();
    }
    if (moving_.empty()) {
      return result_;
    }
    std::vector<c10::DataPtr> old = exchange();
    const WithoutGil released;
    old.clear();
    if (result_.bytes >= kTrim) {
      // Blocks between others that are in use would stay with the allocator.
      malloc_trim(0);
    }
    return result_;
  }

 private:
  bool wanted(const c10::StorageImpl& storage) const {
    return has_own_memory(storage) && storage.nbytes() >= request_.at_least &&
           !request_.excluded.contains(reinterpret_cast<size_t>(&storage));
  }

  void hold(c10::StorageImpl* storage) {
    auto held = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
    const void* data = storage->_mutable_data_ptr_no_checks().get();
    moving_.push_back({c10::Storage(std::move(held)), data, storage->nbytes(), {}, {}});
  }

  StorageOwners owners() const {
    std::unordered_set<const c10::StorageImpl*> held;
    for (const Moving& each : moving_) {
      held.insert(each.storage.unsafeGetStorageImpl());
    }
    return find_owners([this](const c10::StorageImpl& storage) { return wanted(storage); }, held);
  }

  // With the GIL. From here to the move, or to wait(), it is not released: a thread of the model's might free
  // the memory that is read here. None is at that now, as its function would refer to the tensor.
  void choose() {
    if (request_.tensors == nullptr) {
      for (const auto& [storage, known] : owners()) {
        if (known) {
          hold(storage);
        } else {
          ++result_.private_storages;
          result_.private_bytes += storage->nbytes();
        }
      }
      return;
    }
    std::unordered_set<const c10::StorageImpl*> seen;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(request_.tensors); ++i) {
      const at::Tensor* tensor = any_tensor_of(PyList_GET_ITEM(request_.tensors, i));
      if (tensor == nullptr || !tensor->defined() || !tensor->has_storage()) {
        continue;
      }
      c10::StorageImpl* storage = tensor->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      if (wanted(*storage) && seen.insert(storage).second) {
        hold(storage);
      }
    }
  }

  // With the GIL: finds or makes a place for each, and maps it. False if another interpreter is at that.
  bool place() {
    std::vector<Piece> pieces;
    std::vector<Moving*> placed;
    for (Moving& each : moving_) {
      if (!each.content.has_value()) {
        each.content.emplace(content_of(each.data, each.bytes));
      }
      if (each.content->has_value()) {
        pieces.push_back({each.data, **each.content});
        placed.push_back(&each);
      }
    }
    if (pieces.empty()) {
      return true;
    }
    auto placements = services_.place_storages(request_.key, pieces, kBrief);
    if (!placements.has_value()) {
      return false;
    }
    for (size_t i = 0; i < placed.size(); ++i) {
      placed[i]->placement = std::move((*placements)[i]);
      auto& mapping = mappings_[placed[i]->placement.part.get()];
      if (!mapping) {
        mapping = std::make_shared<PartMapping>(placed[i]->placement.part);
      }
    }
    return true;
  }

  // Without the GIL, for another interpreter's turn to end.
  void wait() {
    bool over = false;
    while (!over) {
      made(PyObject_CallNoArgs(request_.tick));
      const WithoutGil released;
      over = services_.place_storages(request_.key, {}, kBetweenLooks).has_value();
    }
  }

  // With the GIL, as choose(), after others may have had it. What was written meanwhile has another content
  // than it was placed for, and stays when it is compared.
  void keep_what_is_as_it_was() {
    const StorageOwners known = request_.tensors == nullptr ? owners() : StorageOwners{};
    std::erase_if(moving_, [&](const Moving& each) {
      c10::StorageImpl* storage = each.storage.unsafeGetStorageImpl();
      if (!wanted(*storage) || storage->nbytes() != each.bytes ||
          storage->_mutable_data_ptr_no_checks().get() != each.data) {
        return true;
      }
      if (request_.tensors != nullptr) {
        return false;
      }
      const auto found = known.find(storage);
      return found == known.end() || !found->second;
    });
  }

  // With the GIL. Gives the memory that is to be freed.
  std::vector<c10::DataPtr> exchange() {
    std::vector<c10::DataPtr> old;
    for (const Moving& each : moving_) {
      if (each.placement.part &&
          repoint(*each.storage.unsafeGetStorageImpl(), mappings_.at(each.placement.part.get()),
                  each.placement.offset, old)) {
        ++result_.storages;
        result_.bytes += each.bytes;
      }
    }
    return old;
  }

  Services& services_;
  const SharingRequest& request_;
  Sharing result_;
  // One for each part and each call: no other code has written to it, and no two models in an interpreter
  // have it in common.
  std::map<const SharedPart*, std::shared_ptr<PartMapping>> mappings_;
  std::vector<Moving> moving_;
};

}  // namespace

PyObject* share_storages(PyObject*, PyObject* args) {
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
  require_torch();
  const Sharing shared = Move(*start_options().services, request).run();
  return Py_BuildValue("(KKKK)", static_cast<unsigned long long>(shared.storages),
                       static_cast<unsigned long long>(shared.bytes),
                       static_cast<unsigned long long>(shared.private_storages),
                       static_cast<unsigned long long>(shared.private_bytes));
}

}  // namespace interpool
