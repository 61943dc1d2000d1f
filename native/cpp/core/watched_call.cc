#include "watched_call.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

namespace interpool {
namespace {

// Code may catch everything, once or twice, and is interrupted again. Not at once: it
// may be cleaning up. After each interruption, this part of the grace is waited.
constexpr std::array<double, 3> kPartsOfGrace = {0.5, 0.25, 0.25};

constexpr std::chrono::milliseconds kImportTurn{20};  // between two looks whether an import is over

uint64_t new_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

WatchedCall::WatchedCall(Interpreter& interpreter) : interpreter_(interpreter), number_(new_number()) {}

bool WatchedCall::begin() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kMade) {
    return false;
  }
  state_ = State::kRunning;
  since_ = Clock::now();
  thread_ = static_cast<int>(syscall(SYS_gettid));
  if (begin_is_awaited_) {
    changed_.notify_all();
  }
  return true;
}

bool WatchedCall::end() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kGivenUp) {
    return false;
  }
  state_ = State::kOver;
  changed_.notify_all();
  return true;
}

void WatchedCall::set_what(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

std::string WatchedCall::what() const {
  const std::lock_guard lock(mutex_);
  return what_;
}

std::optional<double> WatchedCall::running() const {
  const std::lock_guard lock(mutex_);
  const bool runs = state_ == State::kMade || state_ == State::kRunning;
  return runs ? std::optional(in_seconds(Clock::now() - since_)) : std::nullopt;
}

bool WatchedCall::ends_within(double limit) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return state_ == State::kOver; };
  // Nearly always it begins at once, and its thread need not wake this one for that.
  if (!changed_.wait_until(lock, Clock::now() + seconds(limit), over)) {
    begin_is_awaited_ = true;
    changed_.wait(lock, [this] { return state_ != State::kMade; });
  }
  return changed_.wait_until(lock, since_ + seconds(limit), over);
}

void WatchedCall::interrupt() {
  {
    const std::lock_guard lock(mutex_);
    reported_ = false;
  }
  interpreter_.interrupt(number_, [self = shared_from_this()](Interpreter::Interruption interruption) {
    const std::lock_guard lock(self->mutex_);
    self->reported_ = true;
    self->importing_ = !interruption.delivered;
    self->was_importing_ = self->was_importing_ || self->importing_;
    if (self->importing_ || !self->was_importing_) {
      self->where_ = std::move(interruption.where);
    }
    self->changed_.notify_all();
  });
}

bool WatchedCall::interrupt_for(double grace) {
  for (const double part : kPartsOfGrace) {
    const auto until = Clock::now() + seconds(grace * part);
    do {  // again and again as long as it is importing
      interrupt();
      std::unique_lock lock(mutex_);
      const auto over = [this] { return state_ == State::kOver; };
      changed_.wait_until(lock, until, [&] { return over() || (reported_ && importing_); });
      if (reported_ && importing_) {
        changed_.wait_until(lock, std::min<Clock::time_point>(until, Clock::now() + kImportTurn), over);
      }
      if (over()) {
        return true;
      }
    } while (Clock::now() < until);
  }
  return false;
}

std::string WatchedCall::where() const {
  const std::lock_guard lock(mutex_);
  return where_;
}

bool WatchedCall::importing() const {
  const std::lock_guard lock(mutex_);
  return importing_;
}

bool WatchedCall::give_up() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOver || state_ == State::kGivenUp) {
    return false;
  }
  state_ = State::kGivenUp;
  if (thread_ != 0) {  // 0 would be the calling one
    const sched_param none{};
    static_cast<void>(sched_setscheduler(thread_, SCHED_IDLE, &none));
  }
  return true;
}

}  // namespace interpool
