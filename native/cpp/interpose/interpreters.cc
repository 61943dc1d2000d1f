#include "interpreters.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "../upstream/cpython.h"
#include "entered.h"

namespace interpool {
namespace {

std::mutex routes_mutex;  // guards writes to `routes` and `count`; a leaf lock
std::array<std::atomic<const Route*>, kMaxInterpreters> routes;
std::atomic<InterpreterId> count{0};  // one past the highest id in use

__attribute__((tls_model("initial-exec"))) thread_local bool has_states = false;

}  // namespace

constinit thread_local InterpreterId entered = kNone;

void add_route(const Route& route) {
  const std::lock_guard lock(routes_mutex);
  // Replaced routes are leaked on purpose: readers take no lock.
  routes.at(static_cast<size_t>(route.id)).store(new Route(route), std::memory_order_release);
  if (route.id >= count.load(std::memory_order_relaxed)) {
    count.store(route.id + 1, std::memory_order_release);
  }
}

const Route* route_of(InterpreterId id) noexcept {
  if (id < 0 || id >= kMaxInterpreters) {
    return nullptr;
  }
  return routes[static_cast<size_t>(id)].load(std::memory_order_acquire);
}

const Route* owner_of(const PyObject* object) noexcept {
  const auto* type = reinterpret_cast<const ObjectHead*>(object)->type;
  while (type->type != type) {
    type = type->type;
  }
  // Nearly always the one that asks.
  const Route* here = route_of(entered);
  if (here != nullptr && here->type_type == type) {
    return here;
  }
  const InterpreterId end = count.load(std::memory_order_acquire);
  for (InterpreterId id = 0; id < end; ++id) {
    const Route* route = route_of(id);
    if (route != nullptr && route->type_type == type) {
      return route;
    }
  }
  return nullptr;
}

InterpreterId enter_interpreter(InterpreterId id) noexcept {
  const InterpreterId before = entered;
  entered = id;
  return before;
}

InterpreterId current_interpreter() noexcept {
  if (entered != kNone) {
    return entered;
  }
  // The host's own threads, and those that code in C started. Never cached: the answer
  // changes whenever such a thread releases its GIL. The host comes first: its threads keep
  // states in slots they have visited.
  const InterpreterId end = has_states ? count.load(std::memory_order_acquire) : kHost + 1;
  for (InterpreterId id = kHost; id < end; ++id) {
    const Route* route = route_of(id);
    if (route != nullptr && route->holds_gil()) {
      return id;
    }
  }
  for (InterpreterId id = kHost; id < end; ++id) {
    const Route* route = route_of(id);
    if (route != nullptr && route->knows_thread()) {
      return id;
    }
  }
  return kNone;
}

bool may_have_states(bool may) noexcept {
  return std::exchange(has_states, may);
}

}  // namespace interpool
