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
// itself is done outside of it, and twice does no harm.
class Once {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Turn : uint8_t {
    kDone,   // by another caller or before; `result` is what came of it
    kYours,  // the caller does it, and then calls end(), also after an error
    kBusy,   // another was still working on it: ask again
  };

  struct Answer {
    Turn turn = Turn::kBusy;
    std::string result;
    uint64_t number = 0;  // of the caller's turn; never 0 then
  };

  // After this time, another does the work, too. The caller that has the turn may be in a call that never
  // comes back, in an interpreter that was retired.
  static constexpr std::chrono::milliseconds kLongTurn = std::chrono::minutes(1);

  // Waits for at most `patience`, so that a caller that is to be interrupted can be.
  Answer begin(const std::string& work, std::chrono::milliseconds patience,
               std::chrono::milliseconds long_turn = kLongTurn) {
    std::unique_lock lock(mutex_);
    State& state = states_[work];
    changed_.wait_for(lock, patience, [&] { return !state.busy; });
    if (state.busy && Clock::now() - state.since < long_turn) {
      return {Turn::kBusy, {}, 0};
    }
    if (state.result.has_value()) {
      return {Turn::kDone, *state.result, 0};
    }
    state.busy = true;
    state.since = Clock::now();
    state.number = ++last_number_;
    return {Turn::kYours, {}, state.number};
  }

  // The turn of that number. Without a result it was not done: the next caller does it. Nothing if it has
  // ended. A result counts also if another caller has the turn by now.
  void end(const std::string& work, uint64_t number, const std::optional<std::string>& result) {
    {
      const std::lock_guard lock(mutex_);
      const auto known = states_.find(work);
      if (known == states_.end()) {
        return;
      }
      State& state = known->second;
      if (!state.busy || (state.number != number && !result.has_value())) {
        return;
      }
      state.busy = false;
      state.result = result;
    }
    changed_.notify_all();
  }

 private:
  struct State {
    bool busy = false;
    uint64_t number = 0;      // of the turn that was begun last
    Clock::time_point since;  // and when
    std::optional<std::string> result;
  };

  std::mutex mutex_;  // a leaf lock
  std::condition_variable changed_;
  uint64_t last_number_ = 0;
  std::map<std::string, State> states_;  // references into it stay good
};

}  // namespace interpool
