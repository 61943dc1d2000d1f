// Who refers to the storages of an interpreter's tensors.
#pragma once

#include <c10/core/StorageImpl.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "python.h"

namespace interpool {

// A storage of tensors that Python's garbage collector knows, and whether only they can reach its memory.
// That is so if each reference to it is a tensor's, or its Python wrapper's. Each reference to those tensors
// is their Python object's, or a known view's. Each reference to these objects stands in a container that the
// collector knows. Others are numpy arrays, capsules of DLPack, tensors that C++ keeps, variables of
// functions that run: each may have the memory's address.
using StorageOwners = std::unordered_map<c10::StorageImpl*, bool>;

// Those storages that are `wanted`. Of those in `held`, the caller has one reference. Needs the GIL, and
// holds it all along: reads the whole heap twice, and runs no Python code. Throws RemoteError.
StorageOwners find_owners(const std::function<bool(const c10::StorageImpl&)>& wanted,
                          const std::unordered_set<const c10::StorageImpl*>& held);

}  // namespace interpool
