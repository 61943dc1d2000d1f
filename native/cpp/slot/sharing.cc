#include "sharing.h"

#include <malloc.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <interpool/errors.h>
#include "references.h"
#include "storages.h"
#include "torch_python.h"

namespace interpool {
namespace {

constexpr std::chrono::milliseconds kTurn{200};  // what is waited for, between two looks at interruptions
constexpr size_t kTrim = size_t{1} << 20;        // what is worth giving back to the system

// A storage on its way.
struct Moving {
  c10::Storage storage;  // held, so that it is there without the GIL, too
  const void* data = nullptr;
  size_t bytes = 0;
  Placement placement;
};

class Move {
 public:
  Move(Services& services, const SharingRequest& request) : services_(services), request_(request) {}

  Sharing run() {
    choose();
    if (moving_.empty()) {
      return result_;
    }
    place();
    std::vector<c10::DataPtr> old = exchange();
    const GilReleased released;
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
    moving_.push_back({c10::Storage(std::move(held)), data, storage->nbytes(), {}});
  }

  StorageOwners owners() const {
    std::unordered_set<const c10::StorageImpl*> held;
    for (const Moving& each : moving_) {
      held.insert(each.storage.unsafeGetStorageImpl());
    }
    return find_owners([this](const c10::StorageImpl& storage) { return wanted(storage); }, held);
  }

  // With the GIL.
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

  // Without the GIL: finds or makes a place for each, and maps it.
  void place() {
    std::vector<Piece> pieces;
    std::vector<Moving*> placed;
    std::optional<std::vector<Placement>> placements;
    {
      const GilReleased released;
      for (Moving& each : moving_) {
        if (const auto content = content_of(each.data, each.bytes)) {
          pieces.push_back({each.data, *content});
          placed.push_back(&each);
        }
      }
      if (each.content->has_value()) {
        pieces.push_back({each.data, **each.content});
        placed.push_back(&each);
      }
      const GilReleased released;
      placements = services_.place_storages(request_.key, pieces, kTurn);
    }
    const GilReleased released;
    for (size_t i = 0; i < placed.size(); ++i) {
      placed[i]->placement = std::move((*placements)[i]);
      auto& mapping = mappings_[placed[i]->placement.part.get()];
      if (!mapping) {
        mapping = std::make_shared<PartMapping>(placed[i]->placement.part);
      }
    }
  }

  // With the GIL, which is not released from the last look at who refers to a storage to its move.
  // Gives the memory that is to be freed.
  std::vector<c10::DataPtr> exchange() {
    const StorageOwners known = request_.tensors == nullptr ? owners() : StorageOwners{};
    std::vector<c10::DataPtr> old;
    for (const Moving& each : moving_) {
      c10::StorageImpl* storage = each.storage.unsafeGetStorageImpl();
      if (!each.placement.part || !wanted(*storage) || storage->nbytes() != each.bytes ||
          storage->_mutable_data_ptr_no_checks().get() != each.data) {
        continue;
      }
      if (request_.tensors == nullptr) {
        const auto found = known.find(storage);
        if (found == known.end() || !found->second) {
          continue;
        }
      }
      if (repoint(*storage, mappings_.at(each.placement.part.get()), each.placement.offset, old)) {
        ++result_.storages;
        result_.bytes += each.bytes;
      }
    }
    return old;
  }

  Services& services_;
  const SharingRequest& request_;
  Sharing result_;
  // One for each part and each call: nobody else has written to it, and no two models in an
  // interpreter have it in common.
  std::map<const SharedPart*, std::shared_ptr<PartMapping>> mappings_;
  std::vector<Moving> moving_;
};

}  // namespace

Sharing share_storages(Services& services, const SharingRequest& request) {
  require_torch();
  return Move(services, request).run();
}

}  // namespace interpool
