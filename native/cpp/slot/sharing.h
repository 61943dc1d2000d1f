// Memory that the interpreters of a process come to have in common, after each has loaded the same weights.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>

#include "../seam/interpreter.h"
#include "python.h"

namespace interpool {

struct Sharing {
  size_t storages = 0;  // that have shared memory now
  size_t bytes = 0;
  size_t private_storages = 0;  // that somebody else may have the address of
  size_t private_bytes = 0;
};

// What is to be shared, and how.
struct SharingRequest {
  std::string key;                      // only what has the same key is compared
  PyObject* tensors = nullptr;          // a list of tensors whose memory nobody else has the address of; or
                                        // null: whichever of the interpreter's tensors that is true of
  std::unordered_set<size_t> excluded;  // addresses of StorageImpls
  size_t at_least = 0;                  // bytes of a storage
  PyObject* tick = nullptr;  // called now and then while another interpreter is waited for, so that
                             // whoever waits can be interrupted
};

// Needs the GIL, and releases it while another interpreter is waited for, and while memory is freed. It is
// held while memory is read, as a thread of the model's could free that. What it has found out before it
// waited, it acts upon only if it finds it so again. Throws PendingException for what `tick` raises,
// std::system_error when there is no memory: no storage has been moved then.
Sharing share_storages(Services& services, const SharingRequest& request);

}  // namespace interpool
