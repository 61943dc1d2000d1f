// What libinterpool_slot.so is to the process, without Python: opens a fake interpreter. One whose
// loader is called "broken" does not start.
#include <atomic>

#include "fake_interpreter.h"

namespace {

std::atomic<int> starting{0};
std::atomic<int> most_at_once{0};

}  // namespace

// How many were being opened at the same time, at most.
extern "C" __attribute__((visibility("default"))) int fake_slot_most_at_once() {
  return most_at_once.load();
}

extern "C" __attribute__((visibility("default"))) interpool::Interpreter* interpool_open_interpreter(
    const interpool::StartOptions& options) {
  const int now = ++starting;
  int most = most_at_once.load();
  while (most < now && !most_at_once.compare_exchange_weak(most, now)) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  --starting;
  if (options.search_path == std::vector<std::string>{"broken " + std::to_string(options.id)}) {
    throw interpool::InterpreterStartError("interpreter " + std::to_string(options.id) + " is broken");
  }
  static std::mutex mutex;
  static std::vector<std::unique_ptr<interpool::testing::FakeInterpreter>> opened;  // until the process ends
  const std::lock_guard lock(mutex);
  opened.push_back(std::make_unique<interpool::testing::FakeInterpreter>(options.id));
  return opened.back().get();
}
