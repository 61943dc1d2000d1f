// The pool's autoscaler. It lets the pool grow towards its maximum size while callers wait and this process
// leaves cores unused. It also does so while a model waits that is behind the others (fair_queue.h). It parks
// what is not needed, and replaces what was retired.
//
// All of it runs on one thread, so no two interpreters are started at once, and none
// on a request's way. It holds no GIL, and `mutex_` only if a comment says so.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <thread>

#include "../seam/guest_modules.h"
#include "../seam/reported.h"
#include "../seam/thread.h"
#include "cores.h"
#include "model_thread.h"
#include "movable.h"
#include "pool.h"
#include "visits.h"

namespace interpool {
namespace {

constexpr auto kTick = std::chrono::milliseconds(10);    // between two samples
constexpr size_t kWindow = 5;                            // samples
constexpr double kUsed = 0.85;                           // of the cores: from here on, none is unused
constexpr auto kPause = std::chrono::milliseconds(500);  // after a window that showed no need
constexpr auto kLinger = std::chrono::milliseconds(50);  // without a waiter, before a watch ends
// That a model which is behind waits for others' calls to end, before the reserve grows.
constexpr auto kPatience = std::chrono::milliseconds(50);
constexpr auto kRetry = std::chrono::seconds(30);    // after a start that failed; each time twice as long
constexpr auto kParking = std::chrono::seconds(10);  // to be parked in, before another one is started instead
constexpr auto kLongestRetry = std::chrono::hours(1);

std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

// For any interpreter: one more does not help a caller that waits for a certain one.
bool Pool::has_waiters() const {
  for (const Flow* flow : queue_.waiting()) {
    const auto& waiters = flow->waiters;
    if (!flow->own.has_value() && !flow->is_held_back() &&
        std::any_of(waiters.begin(), waiters.end(),
                    [](const Waiter* one) { return !one->only.has_value(); })) {
      return true;
    }
  }
  return false;
}

const Pool::Flow* Pool::lacking() const {
  if (owners_ > 0) {
    for (const auto& [name, flow] : queue_.flows()) {
      if (flow.own.has_value() && flow.own->have < flow.own->wanted) {
        return &flow;
      }
    }
  }
  return nullptr;
}

// One that is being parked counts as long as add_one() would wait for it.
bool Pool::has_parked() const {
  return std::any_of(slots_.begin(), slots_.end(), [now = Clock::now()](const Slot& slot) {
    return slot.state == State::kParked && (!slot.parking.has_value() || *slot.parking + kParking > now);
  });
}

// Alone, a model is not kept waiting by another one, and needs no reserve. If there are others, the first of
// the reserve is started as soon as a caller waits for a call to end: it is there when one of them comes.
// More are started when a model that is behind does. If calls end meanwhile, the next turn is soon.
Clock::time_point Pool::reserve_due() const {
  auto due = Clock::time_point::max();
  if (!may_raise_reserve()) {
    return due;
  }
  auto last_turn = Clock::time_point::min();
  for (const Slot& slot : slots_) {
    if (slot.state == State::kLeased && slot.owner.empty()) {
      last_turn = std::max<Clock::time_point>(last_turn, slot.leased_at);
    }
  }
  const bool ahead = surplus() == 0 && known_models() > 1 && may_grow();
  for (const Flow* flow : queue_.waiting()) {
    const Waiter* first = flow->waiters.front();
    if (flow->own.has_value() || flow->is_held_back() || first->only.has_value() ||
        (!ahead && flow->running != 0)) {
      continue;
    }
    // One that waits: its being behind was decided when it came, or is once it has waited for long.
    const bool is_behind = ahead || queue_.is_behind(*flow, 0);
    const Clock::time_point grows_at = is_behind
                                           ? std::max<Clock::time_point>(first->since, last_turn) + kPatience
                                           : first->since + FairQueue::kLongWait;
    due = std::min<Clock::time_point>(due, grows_at);
  }
  return due;
}

size_t Pool::most_capacity() const {
  const size_t most = std::min(max_size_.load(), limit_);
  return known_models() > 1 && most > min_size_ ? most - 1 : most;
}

size_t Pool::known_models() const {
  return queue_.flows().size() - queue_.flows().count("") - owners_;
}

// Makes it look at the pool now. Called with `mutex_` held.
void Pool::wake_autoscaler() {
  if (autoscaler_runs_) {
    autoscaler_.notify_one();
    return;
  }
  try {
    start_model_thread([self = shared_from_this()] {  // it imports what is to be preloaded
      pthread_setname_np(pthread_self(), "interpool-scale");
      if (!reported([&] { self->autoscale(); })) {
        const std::lock_guard lock(self->mutex_);
        self->retry_at_ = Clock::now() + kRetry;
        self->autoscaler_runs_ = false;  // the next call that needs it starts it again
      }
    });
    autoscaler_runs_ = true;
  } catch (const std::exception&) {
    retry_at_ = Clock::now() + kRetry;  // no thread could be started: the pool stays as it is
  }
}

void Pool::autoscale() {
  const auto review_every = seconds(options_.park_after);
  Locked locked(*this);
  auto& lock = locked.lock();
  if (active_ <= max_size_) {  // else it was made smaller, and is reviewed at once
    review_at_ = Clock::now() + review_every;
  }
  for (;;) {
    tell_listeners(lock);
    if (closed_) {
      break;
    }
    const bool fills = may_add();  // else it does what needs no further interpreter, until it may start one
    const Flow* const flow = fills ? lacking() : nullptr;
    if (fills && active_ < min_size_) {
      fill(lock);
    } else if (flow != nullptr) {
      const std::string owner = flow->name;
      if (!add_one(lock, owner)) {
        retry_at_ = std::max<Clock::time_point>(retry_at_, Clock::now() + kRetry);
      }
    } else if (has_waiters() && (may_raise_capacity() || may_raise_reserve())) {
      const Growth growth = watch(lock);
      if (growth != Growth::kNone) {
        grow(lock, growth);
        review_at_ = Clock::now() + review_every;
      } else if (Clock::now() >= review_at_) {
        park_surplus(lock);
        review_at_ = Clock::now() + review_every;
      }
    } else if (overdue_at() <= Clock::now()) {
      dispatch_overdue();
    } else if (active_ == min_size_ && !is_short() && overdue_at() == Clock::time_point::max()) {
      break;
    } else if (active_ != min_size_ && Clock::now() >= review_at_) {
      park_surplus(lock);
      review_at_ = Clock::now() + review_every;
    } else {
      // A listener that begins to wait meanwhile does not wake it.
      const Clock::time_point soon = Clock::now() + FairQueue::kLongWait;
      const bool tries_again = is_short() && options_.start != nullptr;
      autoscaler_.wait_until(lock, std::min({soon, overdue_at(), active_ == min_size_ ? soon : review_at_,
                                             tries_again ? retry_at_ : soon}));
    }
  }
  autoscaler_runs_ = false;
}

// Samples the load as long as a caller waits for a lease, or until the next review. Says whether one more
// interpreter would help, and whom. All threads count, as a model may compute on threads of its own. Returns
// with `mutex_` held, as it was called.
Pool::Growth Pool::watch(std::unique_lock<std::mutex>& lock) {
  size_t samples = 0;
  size_t runnable = 0;  // threads, in all samples
  auto waited_at = Clock::now();
  while (!closed_ && !should_fill() && (may_raise_capacity() || may_raise_reserve()) &&
         Clock::now() < review_at_) {
    if (reserve_due() <= Clock::now()) {
      return Growth::kReserve;
    }
    auto pause = kTick;
    if (!has_waiters()) {
      if (Clock::now() - waited_at > kLinger) {
        return Growth::kNone;
      }
    } else if (!may_raise_capacity()) {
      pause = kPause;  // the load decides nothing
      waited_at = Clock::now() + kPause;
    } else {
      waited_at = Clock::now();
      lock.unlock();
      runnable += runnable_threads();
      lock.lock();
      if (++samples == kWindow) {
        const bool is_unused = static_cast<double>(runnable) < kUsed * static_cast<double>(cores() * kWindow);
        if (is_unused && !closed_ && may_raise_capacity()) {
          return Growth::kCapacity;
        }
        samples = runnable = 0;
        pause = kPause;
        waited_at += kPause;
      }
    }
    rest(lock, pause);
  }
  return Growth::kNone;
}

// Until the pause is over, or a model is behind that has waited long enough.
void Pool::rest(std::unique_lock<std::mutex>& lock, Clock::duration pause) {
  const auto end = Clock::now() + pause;
  while (!closed_ && !should_fill()) {
    const auto until = std::min(end, reserve_due());
    if (until <= Clock::now()) {
      return;
    }
    autoscaler_.wait_until(lock, until);
  }
}

void Pool::grow(std::unique_lock<std::mutex>& lock, Growth growth) {
  if (growth == Growth::kCapacity && surplus() > 0) {
    ++capacity_;  // what was started for the reserve serves all
    dispatch();
    return;
  }
  if (growth == Growth::kCapacity) {
    ++capacity_;
    if (!add_one(lock)) {
      capacity_ = std::max(min_size_.load(), capacity_ - 1);  // the pool may have been resized meanwhile
    }
    return;
  }
  dispatch_overdue();  // one may be free that was kept for others
  if (reserve_due() > Clock::now()) {
    return;
  }
  if (may_grow()) {
    add_one(lock);
  } else {
    --capacity_;  // of what the pool has grown by; it is free when a lease ends
  }
}

// One that is parked, else a new one. False when none starts.
bool Pool::add_one(std::unique_lock<std::mutex>& lock, const std::string& owner) {
  for (;;) {
    auto until = Clock::time_point::min();
    for (Slot& slot : slots_) {
      if (slot.state == State::kParked && !slot.parking.has_value()) {
        enlist(slot, owner);
        dispatch();
        started_.notify_all();
        return true;
      }
      if (slot.parking.has_value()) {
        until = std::max<Clock::time_point>(until, *slot.parking + kParking);
      }
    }
    if (closed_ || until <= Clock::now()) {
      break;
    }
    started_.wait_until(lock, until);  // it is there sooner than another one
  }
  if (closed_) {
    return false;
  }
  if (!may_start()) {
    wake_all();  // those who have waited for what is being parked for too long
    started_.notify_all();
    return false;
  }
  ++growing_;
  lock.unlock();
  Interpreter* started = nullptr;
  std::exception_ptr thrown;
  try {
    started = options_.start();
  } catch (const std::exception&) {
    thrown = std::current_exception();
  }
  lock.lock();
  --growing_;
  if (started == nullptr) {
    ++failed_starts_;
    if (may_start()) {  // the first to fail of those that were started together
      retry_after_ = std::clamp<Clock::duration>(2 * retry_after_, kRetry, kLongestRetry);
      retry_at_ = Clock::now() + retry_after_;
    }
    failure_ = text_of(thrown);
    wake_all();  // if no interpreter is left, waiting callers get an error
    started_.notify_all();
    if (!closed_) {  // a closed pool does not report it: its process may be ending
      const std::string failure = failure_;
      lock.unlock();
      std::fprintf(stderr, "interpool: the pool could not start another interpreter: %s\n", failure.c_str());
      lock.lock();
    }
    return false;
  }
  failure_.clear();
  retry_after_ = {};
  enlist(slots_.emplace_back(started), owner);
  dispatch();
  started_.notify_all();
  return true;
}

// Towards the minimum size: some at a time, and each serves as soon as it is ready. Half of the cores
// are left to those that serve already.
void Pool::fill(std::unique_lock<std::mutex>& lock) {
  const size_t missing = min_size_ - active_;
  std::vector<std::jthread> starters;  // whose end is waited for, also after an exception
  for (size_t i = 1; i < std::min(missing, cores() / 2); ++i) {
    try {
      starters.emplace_back([this] {
        reported([this] {
          Locked own(*this);
          add_one(own.lock());
        });
      });
    } catch (const std::exception&) {
      break;  // no thread could be started: the others do it
    }
  }
  const bool added = reported([&] { add_one(lock); });
  if (lock.owns_lock()) {
    tell_listeners(lock);
    lock.unlock();
  }
  starters.clear();
  lock.lock();
  if (!added) {
    retry_at_ = Clock::now() + kRetry;
  }
}

// Back to what was needed at once since the last review, and at least to the minimum size.
void Pool::park_surplus(std::unique_lock<std::mutex>& lock) {
  const size_t first = wanted_ > capacity_ && known_models() > 1 ? 1 : 0;
  const size_t reserve = std::min(surplus(), std::max(beyond_, first));
  capacity_ = std::max(min_size_.load(), std::min(capacity_, wanted_));
  const size_t needed = capacity_ + reserve;
  wanted_ = leased_ + queue_.size();
  beyond_ = leased_ > capacity_ ? leased_ - capacity_ : 0;
  std::vector<Interpreter*> parked;
  for (auto slot = slots_.rbegin(); slot != slots_.rend() && active_ > needed; ++slot) {
    if (slot->state == State::kFree && slot->owner.empty() && slot->residents == 0) {
      slot->state = State::kParked;
      slot->parking = Clock::now();
      slot->affinities.clear();
      --active_;
      parked.push_back(slot->interpreter);
    }
  }
  lock.unlock();
  free_what_can_be_made_again(parked, [self = shared_from_this()](const Interpreter& interpreter) {
    self->end_parking(interpreter);
  });
  lock.lock();
}

// Takes `mutex_` itself.
void Pool::end_parking(const Interpreter& interpreter) {
  const Locked locked(*this);
  Slot& slot = *slot_of(interpreter);
  slot.parking.reset();
  for (const Flow* flow : queue_.waiting()) {
    const auto& waiters = flow->waiters;
    if (std::any_of(waiters.begin(), waiters.end(),
                    [&](const Waiter* one) { return one->only == interpreter.id(); })) {
      enlist(slot, {});
      wake_autoscaler();
      dispatch();
      break;
    }
  }
  started_.notify_all();
}

void Pool::free_what_can_be_made_again(const std::vector<Interpreter*>& interpreters,
                                       std::function<void(Interpreter&)> freed) {
  for (const Interpreter* interpreter : interpreters) {
    Movable::unload_all(interpreter->id());
    ModelThread::forget_all(*interpreter);
  }
  visit_each(
      interpreters,
      [freed = std::move(freed)](Interpreter& interpreter) {
        std::exception_ptr thrown;
        try {
          const Held park(interpreter, interpreter.global(guest::kPark.module, guest::kPark.name));
          interpreter.release(interpreter.call(park.get(), {}, {}, nullptr));
        } catch (const std::exception&) {
          thrown = std::current_exception();
        }
        if (freed) {
          freed(interpreter);
        }
        if (thrown) {
          std::rethrow_exception(thrown);
        }
      },
      0);
}

}  // namespace interpool
