// Calls with a time limit.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "../seam/interpreter.h"
#include "watched_call.h"

namespace interpool {

// Runs one session's calls on a thread of their own, one after another. So the caller can come back from a
// call that does not. That thread is its model's, if it is for one. `mutex_` guards all state and is a leaf
// lock. Any thread may call; it holds no GIL.
class Deadline {
 public:
  using Work = std::function<void(WatchedCall&)>;

  struct Limits {
    double call = 0;   // seconds that a call may take
    double grace = 0;  // and that it then has to come back, once interrupted
  };

  // `given_up` is called, once, when a call has not come back.
  static std::shared_ptr<Deadline> start(Interpreter& interpreter, const std::string& model, Limits limits,
                                         std::function<void()> given_up);

  // Runs `work`, which owns all that it touches, and throws what it threw. A call past its limit is
  // interrupted: CallTimeoutError. If it does not come back all the same, the thread is left to itself, and
  // every later call is refused with InterpreterRetiredError. After stop(), that is SessionClosedError.
  void run(Work work);

  bool given_up() const;
  // Throws InterpreterRetiredError when a call was given up.
  void require() const;
  // Ends the thread when it has nothing more to do.
  void stop();

 private:
  struct Job;

  Deadline(Interpreter& interpreter, Limits limits, std::function<void()> given_up)
      : interpreter_(interpreter), limits_(limits), on_given_up_(std::move(given_up)) {}
  void loop();
  void refuse_waiting();
  InterpreterRetiredError retired() const;

  Interpreter& interpreter_;
  const Limits limits_;
  const std::function<void()> on_given_up_;
  mutable std::mutex mutex_;
  std::condition_variable work_;  // for the thread
  std::deque<std::shared_ptr<Job>> queue_;
  bool given_up_ = false;
  bool stopping_ = false;
};

}  // namespace interpool
