// Pools as their owners ask for them, in C++ and in Python: the one place that knows the
// defaults and the valid values.
#pragma once

#include <interpool/manager.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pool.h"

namespace interpool {

struct PoolSize {
  size_t min_size;
  size_t max_size;
};

// On a machine with that many cores, if no more than `startable` interpreters can be started: the default of
// the maximum keeps to that. Throws ArgumentError for an invalid size.
INTERPOOL_PUBLIC PoolSize size_of(const PoolSettings& settings, size_t cores, size_t startable = SIZE_MAX);

// Throws ArgumentError for settings that make no sense.
INTERPOOL_PUBLIC void check(const PoolSettings& settings);

// Throws as check(), before anything is started, and InterpreterStartError. The process is
// prepared, and remembers the pool.
INTERPOOL_PUBLIC std::shared_ptr<Pool> start_pool(const PoolSettings& settings,
                                                  const std::vector<std::string>& search_path);

}  // namespace interpool
