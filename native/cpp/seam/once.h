// Work that one interpreter does for all of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace interpool {

// Any thread, without a GIL: begin() may wait. The mutex is a leaf lock; the work
// itself is done outside of it.
class Once {
 public:
  enum class Turn : uint8_t {
    kDone,   // by somebody; `result` is what came of it
    kYours,  // the caller does it, and then calls end(), whatever happens
    kBusy,   // another was still working on it: ask again
  };

  struct Answer {
    Turn turn = Turn::kBusy;
    std::string result;
  };

  // Waits for at most `patience`, so that a caller that is to be interrupted can be.
  Answer begin(const std::string& work, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    State& state = states_[work];
    changed_.wait_for(lock, patience, [&] { return !state.busy; });
    if (state.busy) {
      return {Turn::kBusy, {}};
    }
    if (state.result.has_value()) {
      return {Turn::kDone, *state.result};
    }
    state.busy = true;
    return {Turn::kYours, {}};
  }

  // Without a result it was not done: the next caller does it.
  void end(const std::string& work, std::optional<std::string> result) {
    {
      const std::lock_guard lock(mutex_);
      State& state = states_[work];
      state.busy = false;
      state.result = std::move(result);
    }
    changed_.notify_all();
  }

 private:
  struct State {
    bool busy = false;
    std::optional<std::string> result;
  };

  std::mutex mutex_;  // a leaf lock
  std::condition_variable changed_;
  std::map<std::string, State> states_;  // references into it stay good
};

}  // namespace interpool
