#include "host_gil.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "../core/clock.h"

namespace interpool {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

std::atomic<bool> closed{false};
std::atomic<int> returning{0};             // threads between the gate and the GIL
std::atomic<std::thread::id> last_thread;  // the one that finalises

// When a thread took the GIL back; 0: it has released it. A hint: other code that takes or releases it does
// not write here.
std::atomic<Clock::rep> taken_at{0};
constexpr Clock::rep kShort = Clock::duration(std::chrono::microseconds(20)).count();

}  // namespace

HostGil::Gate::Gate() {
  ++returning;
  if (closed.load() && std::this_thread::get_id() != last_thread.load()) {
    --returning;
    for (;;) {
      ::pause();
    }
  }
}

HostGil::Gate::~Gate() {
  --returning;
}

void HostGil::taken() noexcept {
  taken_at.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

void HostGil::released() noexcept {
  taken_at.store(0, std::memory_order_relaxed);
}

void HostGil::await_release() noexcept {
  while (const Clock::rep since = taken_at.load(std::memory_order_relaxed)) {
    if (Clock::now().time_since_epoch().count() - since > kShort) {
      return;
    }
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }
}

void HostGil::close() {
  last_thread = std::this_thread::get_id();
  closed = true;
  PyThreadState* state = PyEval_SaveThread();
  // Those that passed the gate before it closed get the GIL while there is one.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (returning.load() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  PyEval_RestoreThread(state);
}

}  // namespace interpool
