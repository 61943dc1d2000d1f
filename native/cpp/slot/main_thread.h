// An interpreter's main thread: the one that started it, and where other threads leave
// what must be released without any GIL held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace interpool {

// One per interpreter, since each has its own copy of this library. `mutex_`
// guards all state and is a leaf lock: nothing is called while it is held.
//
// What is released may run a model's code (`__del__`), which may wait for anything. So there is a spare
// thread. If one piece of work takes the main thread longer than a second, the spare does what is queued
// behind it. If that lasts, too, the rest waits for one of the two.
class MainThread {
 public:
  // Never destroyed: memory may come back from static destructors.
  static MainThread& get();

  // Starts the thread and runs `first` on it; returns when that is done, or
  // throws what it threw.
  void start(const std::function<void()>& first);

  // Is the calling thread this interpreter's main thread, or its spare?
  static bool is_here();

  // Any thread, any GIL. In turn, but for what the spare does. What `work` throws goes to stderr.
  void run_later(std::function<void()> work);

  // Runs nothing any more: what is queued, now or later, is leaked. Blocks until
  // work that is under way has ended.
  void close();
  // The same if there is nothing that it would wait for, or leak; waits for a moment for that.
  bool close_if_idle();

 private:
  using Clock = std::chrono::steady_clock;

  void run_main();
  void run_spare();
  void run_next(std::unique_lock<std::mutex>& lock, bool& busy);
  bool is_idle() const { return !main_busy_ && !spare_busy_; }

  std::mutex mutex_;
  std::condition_variable wake_;    // the main thread
  std::condition_variable behind_;  // the spare: something is queued behind work under way
  std::condition_variable idle_;
  std::deque<std::function<void()>> queue_;
  bool main_busy_ = false;
  bool spare_busy_ = false;
  Clock::time_point began_;  // the main thread's work under way
  bool closed_ = false;
};

}  // namespace interpool
