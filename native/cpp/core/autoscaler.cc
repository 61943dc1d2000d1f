// The pool's autoscaler: lets the pool grow towards its maximum size while leases wait for
// something other than the CPU, parks what is not needed, replaces what was retired.
//
// All of it runs on one thread, so no two interpreters are started at once, and none
// on a request's way. It holds no GIL, and `mutex_` only where it says so.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <thread>

#include "../seam/guest_modules.h"
#include "load_sampler.h"
#include "movable.h"
#include "pool.h"
#include "visits.h"

namespace interpool {
namespace {

constexpr auto kTick = std::chrono::milliseconds(5);     // between two samples
constexpr auto kPause = std::chrono::milliseconds(200);  // after a window of them that showed no need
constexpr auto kLinger = std::chrono::milliseconds(50);  // without a waiter, before a watch ends
constexpr auto kRetry = std::chrono::seconds(30);        // after a start that failed

size_t cores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) {
    return std::max(1U, std::thread::hardware_concurrency());
  }
  return static_cast<size_t>(CPU_COUNT(&mine));
}

}  // namespace

// For any interpreter: one more does not help a caller that waits for a certain one.
bool Pool::anybody_waits() const {
  return std::any_of(waiters_.begin(), waiters_.end(),
                     [](const Waiter* waiter) { return !waiter->only.has_value(); });
}

// Makes it look at the pool now. Called with `mutex_` held.
void Pool::wake_autoscaler() {
  if (autoscaler_runs_) {
    autoscaler_.notify_one();
    return;
  }
  try {
    std::thread([self = shared_from_this()] {
      pthread_setname_np(pthread_self(), "interpool-scale");
      self->autoscale();
    }).detach();
    autoscaler_runs_ = true;
  } catch (const std::system_error&) {
    retry_at_ = Clock::now() + kRetry;  // no thread could be started: the pool stays as it is
  }
}

void Pool::autoscale() {
  const auto review_every = seconds(options_.park_after);
  std::unique_lock lock(mutex_);
  auto review_at = Clock::now() + review_every;
  while (!closed_) {
    if (active_ < min_size_) {
      if (may_start()) {
        add_one(lock);
      } else {
        autoscaler_.wait_until(lock, retry_at_);
      }
    } else if (anybody_waits() && may_grow()) {
      if (watch(lock)) {
        add_one(lock);
        review_at = Clock::now() + review_every;
      }
    } else if (active_ == min_size_) {
      break;
    } else if (Clock::now() >= review_at) {
      park_surplus(lock);
      review_at = Clock::now() + review_every;
    } else {
      autoscaler_.wait_until(lock, review_at);
    }
  }
  autoscaler_runs_ = false;
}

// Samples the load as long as anybody waits for a lease; true when one more interpreter
// would help. Returns with `mutex_` held, as it was called.
bool Pool::watch(std::unique_lock<std::mutex>& lock) {
  LoadSampler load(cores());
  auto waited_at = Clock::now();
  while (!closed_ && active_ >= min_size_ && may_grow()) {
    auto pause = kTick;
    if (!anybody_waits()) {
      if (Clock::now() - waited_at > kLinger) {
        return false;
      }
    } else {
      waited_at = Clock::now();
      std::vector<LoadSampler::Lease> leases;
      for (const Slot& slot : slots_) {
        if (slot.state == State::kLeased) {
          const Interpreter::Presence presence = slot.interpreter->presence();
          leases.push_back({slot.interpreter->id(), presence.thread, presence.visits, slot.thread});
        }
      }
      lock.unlock();
      load.sample(leases);
      const bool told = load.is_full();
      const bool waits = told && load.waits_elsewhere();
      lock.lock();
      if (told) {
        if (waits && !closed_ && may_grow()) {
          return true;
        }
        pause = kPause;
        waited_at += kPause;
      }
    }
    autoscaler_.wait_for(lock, pause, [this] { return closed_ || active_ < min_size_; });
  }
  return false;
}

// One that is parked, else a new one.
void Pool::add_one(std::unique_lock<std::mutex>& lock) {
  for (Slot& slot : slots_) {
    if (slot.state == State::kParked) {
      ++active_;
      offer(slot);
      return;
    }
  }
  growing_ = true;
  lock.unlock();
  Interpreter* started = nullptr;
  std::string failure;
  try {
    started = options_.start();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  lock.lock();
  growing_ = false;
  failure_ = failure;
  if (started == nullptr) {
    retry_at_ = Clock::now() + kRetry;
    wake_all();      // if no interpreter is left, waiting callers get an error
    if (!closed_) {  // a closed pool does not report it: its process may be ending
      lock.unlock();
      std::fprintf(stderr, "interpool: the pool could not start another interpreter: %s\n", failure.c_str());
      lock.lock();
    }
    return;
  }
  ++active_;
  offer(slots_.emplace_back(started));
}

// Back to what was needed at once since the last review, and at least to the minimum size.
void Pool::park_surplus(std::unique_lock<std::mutex>& lock) {
  const size_t needed = std::max(min_size_, wanted_);
  wanted_ = leased_ + waiters_.size();
  std::vector<Interpreter*> parked;
  for (auto slot = slots_.rbegin(); slot != slots_.rend() && active_ > needed; ++slot) {
    if (slot->state == State::kFree) {
      slot->state = State::kParked;
      slot->affinities.clear();
      --active_;
      parked.push_back(slot->interpreter);
    }
  }
  lock.unlock();
  for (const Interpreter* interpreter : parked) {
    Movable::unload_all(interpreter->id());
  }
  visit_each(
      parked,
      [](Interpreter& interpreter) {
        const Held park(interpreter, interpreter.global(guest::kPark.module, guest::kPark.name));
        interpreter.release(interpreter.call(park.get(), {}, {}));
      },
      0);
  lock.lock();
}

}  // namespace interpool
