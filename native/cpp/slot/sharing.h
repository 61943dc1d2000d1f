// Memory that the interpreters of a process come to have in common, after each has loaded the same weights.
#pragma once

#include "python.h"

namespace interpool {

// share_storages(key: str, tensors: list[Tensor] | None, excluded: list[int], at_least: int,
//                tick: Callable[[], object]) -> (storages, bytes, private storages, private bytes)
//
// Moves the memory of `tensors`, or if it is None of all tensors in here, to memory that other interpreters
// map, too. It moves memory whose addresses have no other user, if its contents are what the others have
// under the same key. Left out are storages with fewer bytes than `at_least`, and those whose StorageImpl's
// address is in `excluded`. `tick` is called now and then while another interpreter is waited for, so that
// the caller can be interrupted. OSError if there is no memory: nothing has been moved then.
//
// Needs the GIL, and releases it while another interpreter is waited for, and while memory is freed. It is
// held while memory is read, as a thread of the model's could free that. What it has found out before it
// waited, it acts upon only if it finds it so again. To be called `guarded`.
PyObject* share_storages(PyObject* module, PyObject* args);

}  // namespace interpool
