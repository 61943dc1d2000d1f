// A call into an interpreter that another thread may interrupt, or give up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "../seam/interpreter.h"
#include "clock.h"

namespace interpool {

// Any thread may call; it holds no GIL. `mutex_` guards what stands below it and is a leaf lock.
class WatchedCall : public std::enable_shared_from_this<WatchedCall> {
 public:
  explicit WatchedCall(Interpreter& interpreter);
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

  Interpreter& interpreter() const { return interpreter_; }
  uint64_t number() const { return number_; }  // for Interruptible

  // By the thread that makes the call. Both are false if it has been given up.
  bool begin();
  bool end();
  // What is called, for messages.
  void set_what(std::string what);
  std::string what() const;

  // Seconds since it began, or was made if it has not begun; nullopt once it is over or given up.
  std::optional<double> running() const;
  // Whether it ends within so many seconds after its beginning; waits for both.
  bool ends_within(double limit);

  // Raises CallInterrupted in it, if it is in Python code that may be interrupted. Returns at once.
  void interrupt();
  // Interrupts it, again and again, for so many seconds; whether it has ended.
  bool interrupt_for(double grace);
  // The stack at which the last interruption found it, or the last that found it in an import, if any did.
  // "" if it was not interrupted, or its GIL could not be had.
  std::string where() const;
  // Whether it was in an import when it was last seen, which is not interrupted: to be tried again.
  bool importing() const;

  // Leaves it to itself, as native code cannot be interrupted: its thread gets what time the processors
  // have to spare. False if it is over, or has been given up.
  bool give_up();

 private:
  enum class State : uint8_t { kMade, kRunning, kOver, kGivenUp };

  Interpreter& interpreter_;
  const uint64_t number_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kMade;
  bool begin_is_awaited_ = false;
  Clock::time_point since_ = Clock::now();
  int thread_ = 0;  // that makes it, by the kernel's number; 0 before it has begun
  std::string what_;
  std::string where_;
  bool reported_ = false;   // has the last interruption said what it found?
  bool importing_ = false;  // when one last did
  bool was_importing_ = false;
};

}  // namespace interpool
