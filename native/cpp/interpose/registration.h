// The one lock of registration with torch's dispatcher.
#pragma once

#include <mutex>

namespace interpool {

// Held while anything is registered or taken back, and while an operator's list of kernels is read. torch
// leaves that to the GIL, of which there are several here. It guards the tables of torch_library.cc and
// kernels.cc, too.
//
// Recursive: destroying a registration may run Python finalisers that unregister
// more. Lock order: after any interpreter's GIL, before the dispatcher's own
// mutex; no GIL is waited for while it is held.
std::recursive_mutex& registration_mutex();

}  // namespace interpool
