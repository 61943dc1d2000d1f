// An interpreter's main thread: the one that started it, and where other threads leave
// what must be released without any GIL held.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace interpool {

// One per interpreter, since each has its own copy of this library. `mutex_`
// guards the queue and is a leaf lock: nothing is called while it is held.
class MainThread {
 public:
  // Never destroyed: memory may come back from static destructors.
  static MainThread& get();

  // Starts the thread and runs `first` on it; returns when that is done, or
  // throws what it threw.
  void start(const std::function<void()>& first);

  // Any thread, any GIL.
  void run_later(std::function<void()> work);

  // Runs nothing any more: what is queued, now or later, is leaked. Blocks until
  // work that is under way has ended.
  void close();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<std::function<void()>> queue_;
  bool busy_ = false;
  bool closed_ = false;
};

}  // namespace interpool
