// Storages whose memory can be exchanged for equal memory that several interpreters have in common.
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "../seam/shared_part.h"

namespace interpool {

// Whether it is memory of torch's own allocator for the CPU, as it came: any thread may free it, with
// any GIL or none.
bool is_allocated_by_torch(const c10::DataPtr& pointer);

// Whether this storage's memory is its own. It is if it lies on the CPU, is as torch's own allocator made it,
// and no other code writes or frees it. Not what is mapped from a file, what numpy or another process owns,
// what is copied on write, or what was shared before.
bool has_own_memory(const c10::StorageImpl& storage);

// Its content; none if most of it is zero, as it is scratch space then. Memory that was never written takes
// none, and a copy of it would. Reads all of it; needs no GIL.
std::optional<Content> content_of(const void* data, size_t bytes);

// One mapping of a part, copy-on-write: what is written through it shows in no other.
class PartMapping {
 public:
  // Throws std::system_error.
  explicit PartMapping(std::shared_ptr<const SharedPart> part);
  ~PartMapping();
  PartMapping(const PartMapping&) = delete;
  PartMapping& operator=(const PartMapping&) = delete;

  char* at(size_t offset) const { return static_cast<char*>(address_) + offset; }

 private:
  const std::shared_ptr<const SharedPart> part_;
  void* address_ = nullptr;
};

// If the mapping holds there what the storage holds, the storage has its memory there from now on, and keeps
// the mapping alive. `old` gets what it had before. No two storages may have the same place in a mapping. No
// other code may use the storage meanwhile, or keep its address.
bool repoint(c10::StorageImpl& storage, const std::shared_ptr<PartMapping>& mapping, size_t offset,
             std::vector<c10::DataPtr>& old);

}  // namespace interpool
