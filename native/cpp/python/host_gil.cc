#include "host_gil.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace interpool {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);

std::atomic<bool> closed{false};
std::atomic<int> returning{0};             // threads between the gate and the GIL
std::atomic<std::thread::id> last_thread;  // the one that finalises

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
