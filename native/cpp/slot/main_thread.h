// An interpreter's main thread: the one that started it, and where other threads leave
// what must be released without any GIL held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace interpool {

// One per interpreter, since each has its own copy of this library. `mutex_`
// guards all state and is a leaf lock: nothing is called while it is held.
//
// What is released may run a model's code (`__del__`), which may wait for anything. So the main
// thread has a relief: where it has been at one piece of work for a second, the relief does the next,
// and has one itself then.
class MainThread {
 public:
  // Never destroyed: memory may come back from static destructors.
  static MainThread& get();

  // Starts the thread and runs `first` on it; returns when that is done, or
  // throws what it threw.
  void start(const std::function<void()>& first);

  // Is the calling thread this interpreter's main thread, or a relief of it?
  static bool is_here();

  // Any thread, any GIL. In turn, but for what a relief does. What `work` throws goes to stderr.
  void run_later(std::function<void()> work);

  // The work at hand is about to wait for the GIL, and has got it: nobody could relieve it meanwhile.
  // Nothing on other threads.
  void begin_wait();
  void end_wait();

  // Runs nothing any more: what is queued, now or later, is leaked. Blocks until
  // work that is under way has ended.
  void close();
  // The same if there is nothing that it would wait for, or leak; waits for a moment for that.
  bool close_if_idle();

 private:
  using Clock = std::chrono::steady_clock;

  // What a thread is at. The main thread is the first one.
  struct Runner {
    bool busy = false;
    Clock::time_point stuck_at = Clock::time_point::max();  // then the next runner does the next work
    bool watching = false;                                  // will look at the runner before it, by itself
  };

  void loop(size_t runner);
  bool may_run(size_t runner) const;
  void add_relief();
  void alert();
  void watch(size_t runner, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_;   // the main thread
  std::condition_variable alert_;  // reliefs
  std::condition_variable idle_;
  std::deque<std::function<void()>> queue_;
  std::deque<Runner> runners_{Runner{}};  // a deque: references to runners stay good
  bool closed_ = false;
};

}  // namespace interpool
