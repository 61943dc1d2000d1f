// Something that each interpreter has one of. It is made when first wanted, and never freed: libtorch and
// threads that outlive their interpreter keep references to it.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "interpreters.h"

namespace interpool {

template <typename Thing>
class PerInterpreter {
 public:
  // The interpreter's; `make` is called for the first that asks, under a leaf lock. Any thread.
  template <typename Make>
  Thing& of(InterpreterId id, const Make& make) {
    auto& place = places_[static_cast<size_t>(id)];
    if (Thing* known = place.load(std::memory_order_acquire)) {
      return *known;
    }
    const std::lock_guard lock(mutex_);
    if (place.load(std::memory_order_relaxed) == nullptr) {
      place.store(make(), std::memory_order_release);
    }
    return *place.load(std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;  // guards writes
  std::array<std::atomic<Thing*>, kMaxInterpreters> places_{};
};

}  // namespace interpool
