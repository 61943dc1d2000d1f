// The cores, and how many of them this process could use.
#pragma once

#include <cstddef>

namespace interpool {

// Those that this process may use.
size_t cores();

// The threads of this process that run or wait for a core, except the calling one and those of calls that
// were given up. CPU time would not say that: by it, threads that compute on a crowded machine, or under a
// quota, look idle. Takes some microseconds for each thread. Any thread.
size_t runnable_threads();

}  // namespace interpool
