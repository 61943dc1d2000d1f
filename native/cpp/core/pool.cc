#include "pool.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "../seam/reported.h"
#include "model_thread.h"
#include "visits.h"

namespace interpool {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // between two looks of a WatchedWait
// Between two loads in an interpreter, if others have the models: times the length of the lease that loaded
// the last one, and the most. The call may have been what took long.
constexpr int kLoadPause = 3;
constexpr Clock::duration kLongestLoadPause = std::chrono::seconds(2);
// See Pool::next_turn(). About what exchanging models costs, several times.
constexpr Clock::duration kTurn = std::chrono::milliseconds(2);

thread_local WatchedWait* watched = nullptr;

constexpr const char* kClosed = "the pool of interpreters is closed; make a new InterpreterManager to go on.";

int this_thread() {
  thread_local const int number = static_cast<int>(syscall(SYS_gettid));
  return number;
}

double seconds_of(Clock::time_point time) {
  return in_seconds(time.time_since_epoch());
}

}  // namespace

WatchedWait::WatchedWait(std::function<void()> look)
    : look_(std::move(look)), outer_(std::exchange(watched, this)) {}

WatchedWait::~WatchedWait() {
  watched = outer_;
}

Pool::Pool(std::vector<Interpreter*> interpreters, PoolOptions options)
    : options_(std::move(options)),
      min_size_(interpreters.size()),
      max_size_(std::max(options_.max_size, interpreters.size())),
      slots_(interpreters.begin(), interpreters.end()),
      active_(interpreters.size()),
      capacity_(interpreters.size()) {}

void Pool::refuse_if_hopeless(const Flow& flow, std::optional<int> only) const {
  if (closed_) {
    throw PoolClosedError(kClosed);
  }
  if ((flow.own.has_value() ? flow.own->have : active_) == 0 && !failure_.empty() && !has_parked()) {
    throw InterpreterStartError("every interpreter of the pool was retired, and no other starts: " +
                                failure_);
  }
  if (!only.has_value()) {
    return;
  }
  for (const Slot& slot : slots_) {
    if (slot.interpreter->id() == *only && !is_gone(slot) && may_take(slot, flow, only)) {
      return;
    }
  }
  throw InterpreterRetiredError("interpreter " + std::to_string(*only) +
                                " was retired, serves another model alone, or never was one of this pool's; "
                                "acquire any other.");
}

// Whether a waiter who wants `only` that one may have this slot, once it is free.
bool Pool::may_take(const Slot& slot, const Flow& flow, std::optional<int> only) const {
  const bool is_others = !slot.owner.empty() && slot.owner != flow.name;
  if (only.has_value()) {
    return slot.interpreter->id() == *only && (!is_others || flow.name.empty());
  }
  if (is_others || slot.owner.empty() == flow.own.has_value()) {
    return false;
  }
  if (flow.own.has_value() || limit_ >= active_) {
    return true;
  }
  // Retired and parked ones do not count.
  size_t before = 0;
  for (const Slot& one : slots_) {
    if (&one == &slot) {
      break;
    }
    before += is_active(one) && one.owner.empty() ? 1 : 0;
  }
  return before < limit_;
}

bool Pool::may_have_more(const Flow& flow) const {
  if (flow.is_held_back()) {
    return false;
  }
  return flow.own.has_value() || leased_ < capacity_ || queue_.is_behind(flow, seconds_of(Clock::now()));
}

Pool::Slot* Pool::free_slot(const Flow& flow, std::optional<int> only, std::optional<int> preferred) {
  Slot* best = nullptr;
  Slot* known = nullptr;  // that has served the flow
  const auto nearness = [&](const Slot& one) {
    const bool is_in_place = one.model == flow.name;
    const auto age = is_in_place ? Clock::duration::zero() : -one.leased_at.time_since_epoch();
    return std::make_tuple(is_in_place, one.thread == preferred, age);
  };
  for (Slot& slot : slots_) {
    if (only.has_value() && slot.interpreter->id() == *only && slot.state == State::kParked &&
        !slot.parking.has_value()) {
      enlist(slot, {});  // asked for by name; the autoscaler parks it again
      wake_autoscaler();
    }
    if (slot.state != State::kFree || !may_take(slot, flow, only)) {
      continue;
    }
    if (flow.name.empty() || slot.affinities.count(flow.name) != 0) {
      if (known == nullptr || nearness(slot) > nearness(*known)) {
        known = &slot;
      }
      continue;
    }
    // Among strangers, the one with the fewest models: they spread evenly. Among such, the one that was
    // leased longest ago: the first must not get all that is tried, should it be broken.
    const auto load = [](const Slot& one) { return std::make_pair(one.affinities.size(), one.leased_at); };
    if (best == nullptr || load(slot) < load(*best)) {
      best = &slot;
    }
  }
  return known != nullptr ? known : best;
}

Pool::Slot* Pool::slot_of(const Interpreter& interpreter) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const Slot& slot) { return slot.interpreter == &interpreter; });
  return found == slots_.end() ? nullptr : &*found;
}

void Pool::take(Slot& slot, Flow& flow, int thread, double waited) {
  slot.state = State::kLeased;
  ++slot.leases;
  slot.thread = thread;
  slot.leased_at = Clock::now();
  if (slot.model != flow.name) {
    slot.model = flow.name;
    slot.turn_at = slot.leased_at;
  }
  slot.flow = &flow;
  slot.is_first = false;
  if (!flow.name.empty()) {
    slot.is_first = slot.affinities.insert_or_assign(flow.name, slot.leased_at).second;
  }
  LeaseCounters& counters = counters_[flow.name];
  ++counters.leases;
  counters.waits.count(waited);
  queue_.begin(flow, seconds_of(slot.leased_at));
  if (!slot.owner.empty()) {
    ++own_leased_;
    return;
  }
  ++leased_;
  wanted_ = std::max(wanted_, leased_ + queue_.size());
  if (leased_ > capacity_) {
    beyond_ = std::max(beyond_, leased_ - capacity_);
  }
}

// What it becomes then, the caller says.
void Pool::end_lease(Slot& slot, Requests answered) {
  const auto now = Clock::now();
  const auto served = slot.affinities.find(slot.flow->name);
  if (served != slot.affinities.end()) {
    served->second = now;
  }
  if (slot.is_first) {
    slot.next_load_at = now + std::min(kLoadPause * (now - slot.leased_at), kLongestLoadPause);
  }
  // The model may have been forgotten meanwhile.
  if (const auto found = counters_.find(slot.flow->name); found != counters_.end()) {
    LeaseCounters& counters = found->second;
    counters.leased.count(in_seconds(now - slot.leased_at));
    counters.requests += answered.count;
    counters.failed += answered.failed ? answered.count : 0;
  }
  queue_.end(*slot.flow, seconds_of(slot.leased_at), seconds_of(now));
  slot.flow = nullptr;
  slot.holder.reset();
  --(slot.owner.empty() ? leased_ : own_leased_);
}

Pool::Slot* Pool::free_slot_for(const Waiter& waiter) {
  const bool may = waiter.only.has_value() || may_have_more(waiter.flow);
  return may ? free_slot(waiter.flow, waiter.only) : nullptr;
}

bool Pool::is_load_deferred(const Slot& slot, const Flow& flow, Clock::time_point now) const {
  return now < slot.next_load_at && !flow.name.empty() && slot.affinities.count(flow.name) == 0 &&
         std::any_of(
             slots_.begin(), slots_.end(),
             [&](const Slot& one) { return is_active(one) && one.affinities.count(flow.name) != 0; });
}

Pool::Turn Pool::turn_that_goes_on(Clock::time_point now) {
  for (Slot& slot : slots_) {
    if (slot.state != State::kFree || slot.model.empty() || now - slot.turn_at >= kTurn) {
      continue;
    }
    for (Flow* flow : queue_.waiting()) {
      Waiter* const first = flow->waiters.front();
      if (flow->name == slot.model && may_take(slot, *flow, first->only) && may_have_more(*flow)) {
        return {first, &slot};
      }
    }
  }
  return {};
}

Pool::Turn Pool::next_turn(Clock::time_point now, bool loads_all) {
  Turn turn = turn_that_goes_on(now);
  if (turn.waiter != nullptr) {
    return turn;
  }
  queue_.next(seconds_of(now), [&](const Flow& flow) {
    for (Waiter* waiter : flow.waiters) {
      Slot* const slot = free_slot_for(*waiter);
      if (slot == nullptr) {
        continue;
      }
      if (loads_all || waiter->only.has_value() || !is_load_deferred(*slot, flow, now)) {
        turn.waiter = waiter;
        turn.slot = slot;
        return true;
      }
      turn.is_any_deferred = true;
    }
    return false;
  });
  return turn;
}

void Pool::dispatch() {
  while (!queue_.empty() && leased_ + own_leased_ < active_ + own_) {
    const auto now = Clock::now();
    Turn turn = next_turn(now, /*loads_all=*/false);
    if (turn.waiter == nullptr && turn.is_any_deferred) {
      turn = next_turn(now, /*loads_all=*/true);
    }
    if (turn.waiter == nullptr) {
      return;
    }
    take(*turn.slot, turn.waiter->flow, turn.waiter->thread, in_seconds(now - turn.waiter->since));
    queue_.stop_waiting(*turn.waiter);
    grant(*turn.waiter, turn.slot);
  }
}

Interpreter& Pool::acquire(const std::string& affinity, std::optional<double> timeout,
                           std::optional<int> only, bool runs_here) {
  if (timeout.has_value() && !(*timeout >= 0)) {
    throw ArgumentError("a timeout is a number of seconds, not " + number_text(*timeout));
  }
  return begun(lease(affinity, timeout, only, runs_here), affinity);
}

bool Pool::acquire_for(const std::string& affinity, std::shared_ptr<LeaseListener> listener) {
  Locked locked(*this);
  Flow& flow = queue_.flow(affinity);
  if (closed_ || flow.own.has_value()) {
    return false;
  }
  const auto now = Clock::now();
  Slot* slot = flow.waiters.empty() && may_have_more(flow) ? free_slot(flow, std::nullopt) : nullptr;
  if (slot == nullptr && !may_listen(flow)) {
    return false;
  }
  Listening& one = listening_.emplace_back(flow, this_thread(), now, std::move(listener));
  if (slot != nullptr) {
    take(*slot, flow, one.waiter.thread);
    grant(one.waiter, slot);
    dispatch();
    return true;
  }
  queue_.wait(one.waiter, seconds_of(now));
  dispatch();
  const bool is_needed = !queue_.empty() && (may_raise_capacity() || may_raise_reserve());
  // It looks at the time, too, in the place of a thread that waits.
  if (is_needed || (min_size_ != max_size_ && !autoscaler_runs_)) {
    wake_autoscaler();
  }
  return true;
}

Clock::time_point Pool::overdue_at() const {
  auto first = Clock::time_point::max();
  for (const Listening& one : listening_) {
    if (!one.is_overdue) {
      first = std::min<Clock::time_point>(first, one.waiter.since + FairQueue::kLongWait);
    }
  }
  return first;
}

void Pool::dispatch_overdue() {
  const auto now = Clock::now();
  for (Listening& one : listening_) {
    one.is_overdue = one.is_overdue || one.waiter.since + FairQueue::kLongWait <= now;
  }
  dispatch();
}

bool Pool::stop_waiting(const LeaseListener& listener) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(listening_.begin(), listening_.end(),
                                  [&](const Listening& one) { return one.listener.get() == &listener; });
  if (found == listening_.end()) {
    return false;
  }
  queue_.stop_waiting(found->waiter);
  listening_.erase(found);
  return true;
}

bool Pool::may_listen(const Flow& flow) const {
  return !closed_ && active_ > 0 && !flow.own.has_value();
}

void Pool::grant(Waiter& waiter, Slot* slot) {
  waiter.granted = slot;
  if (waiter.listener == nullptr) {
    waiter.wake.notify_one();
    return;
  }
  const auto found = std::find_if(listening_.begin(), listening_.end(),
                                  [&](const Listening& one) { return &one.waiter == &waiter; });
  found->interpreter = slot != nullptr ? slot->interpreter : nullptr;
  to_tell_.splice(to_tell_.end(), listening_, found);
}

void Pool::tell_listeners(std::unique_lock<std::mutex>& lock) {
  for (auto one = listening_.begin(); one != listening_.end();) {
    Waiter& waiter = (one++)->waiter;
    if (!may_listen(waiter.flow)) {
      queue_.stop_waiting(waiter);
      grant(waiter, nullptr);
    }
  }
  while (!to_tell_.empty()) {
    std::list<Listening> decided;
    decided.swap(to_tell_);
    lock.unlock();
    for (Listening& one : decided) {
      Interpreter* leased = nullptr;
      reported([&] {
        leased = one.interpreter != nullptr ? &begun(*one.interpreter, one.waiter.flow.name) : nullptr;
      });
      one.listener->leased(leased);
    }
    decided.clear();
    lock.lock();
  }
}

Interpreter& Pool::begun(Interpreter& interpreter, const std::string& affinity) {
  try {
    interpreter.begin_lease(affinity);
  } catch (...) {
    release(interpreter);
    throw;
  }
  return interpreter;
}

// Why a lease was not had in time, and what to do.
std::string Pool::why_none(const Flow& flow, std::optional<int> only, double timeout) const {
  const std::string who = only.has_value() ? "interpreter " + std::to_string(*only) + " did not become"
                                           : std::string("no interpreter became");
  std::string why = "all " + std::to_string(active_) + " are leased";
  if (flow.own.has_value()) {
    why = "all " + std::to_string(flow.own->have) + " of " + flow.name + "'s own are leased";
  } else if (!only.has_value() && flow.running >= flow.share) {
    why = flow.name + " has its share of them, " + std::to_string(flow.share);
  } else if (leased_ < active_) {
    why = std::to_string(leased_) + " of " + std::to_string(active_) +
          " are leased, and the others are kept for models that have had less";
  }
  return who + " free within " + std::to_string(timeout) + " s: " + why +
         ". Close sessions sooner, wait longer, or make the pool larger.";
}

Interpreter& Pool::lease(const std::string& affinity, std::optional<double> timeout, std::optional<int> only,
                         bool runs_here) {
  Locked locked(*this);
  auto& lock = locked.lock();
  Flow& flow = queue_.flow(affinity);
  const int thread = this_thread();
  refuse_if_hopeless(flow, only);
  // If others of the flow wait, this one waits behind them.
  if (flow.waiters.empty() && (only.has_value() || may_have_more(flow))) {
    if (Slot* slot = free_slot(flow, only, runs_here ? std::optional(thread) : std::nullopt)) {
      take(*slot, flow, thread);
      dispatch();
      return *slot->interpreter;
    }
  }
  const auto now = Clock::now();
  Waiter waiter{flow, only, thread, now};
  queue_.wait(waiter, seconds_of(now));
  dispatch();
  tell_listeners(lock);
  if (waiter.granted == nullptr && !only.has_value()) {
    if (flow.own.has_value()) {
      want_more(flow, min_size_);
    } else if (may_raise_capacity() || may_raise_reserve()) {
      wake_autoscaler();
    }
  }
  const auto deadline = now + seconds(timeout.value_or(kForever));
  // As long as this is ahead: the time from when it may have what is free but kept for others.
  auto overdue_at = now + FairQueue::kLongWait;
  while (waiter.granted == nullptr) {
    auto until = std::min<Clock::time_point>(deadline, overdue_at);
    if (watched != nullptr) {
      until = std::min<Clock::time_point>(until, Clock::now() + kLook);
    }
    const bool in_vain = waiter.wake.wait_until(lock, until) == std::cv_status::timeout;
    if (in_vain && watched != nullptr) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        watched->look_();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        if (waiter.granted == nullptr) {
          queue_.stop_waiting(waiter);
        } else {
          Interpreter& granted = *static_cast<Slot*>(waiter.granted)->interpreter;
          lock.unlock();
          release(granted);
          lock.lock();
        }
        std::rethrow_exception(failure);
      }
    }
    if (Clock::now() >= overdue_at) {
      overdue_at = Clock::time_point::max();
      dispatch();  // no lease need end for it
      tell_listeners(lock);
    }
    if (waiter.granted != nullptr) {
      break;
    }
    if (ending_ && Clock::now() < deadline) {
      continue;  // an error would help no caller
    }
    try {
      refuse_if_hopeless(flow, only);
    } catch (...) {
      queue_.stop_waiting(waiter);
      throw;
    }
    if (timeout.value_or(kForever) < kForever && Clock::now() >= deadline) {
      const std::string why = why_none(flow, only, *timeout);
      queue_.stop_waiting(waiter);  // which may drop the flow
      throw LeaseTimeoutError(why);
    }
  }
  return *static_cast<Slot*>(waiter.granted)->interpreter;
}

void Pool::release(Interpreter& interpreter, Requests answered) {
  const std::optional<std::string> claimant = interpreter.take_claim();
  bool retires = interpreter.wants_to_retire();
  if (!retires) {
    const Locked locked(*this);
    Slot* slot = slot_of(interpreter);
    if (slot == nullptr || slot->state != State::kLeased) {
      return;
    }
    // What a model claims that is gone meanwhile serves no other one either.
    retires = has_lost_owner(*slot) || (claimant.has_value() && slot->flow->is_forgotten());
    if (!retires) {
      end_lease(*slot, answered);
      slot->state = State::kFree;
      if (claimant.has_value()) {
        give_to(*slot, *claimant);
      }
      dispatch();
    }
  }
  if (retires) {
    retire(interpreter, answered);
    free_what_can_be_made_again({&interpreter});
  }
}

void Pool::retire(Interpreter& interpreter, Requests answered) {
  ModelThread::forget_all(interpreter);
  const Locked locked(*this);
  Slot* slot = slot_of(interpreter);
  if (slot == nullptr || slot->state != State::kLeased) {
    return;
  }
  end_lease(*slot, answered);
  lose(*slot);
  dispatch();
  wake_all();  // a caller may wait for this very one
  if (!options_.start) {
    failure_ = "this pool starts none.";
  } else if (!closed_) {
    wake_autoscaler();
  }
}

void Pool::resize(int64_t min_size, int64_t max_size) {
  if (min_size < 1 || max_size < min_size) {
    throw ArgumentError("a pool's minimum size is 1 or more, and its maximum size is not below it; not " +
                        std::to_string(min_size) + " and " + std::to_string(max_size));
  }
  const Locked locked(*this);
  if (options_.start == nullptr && static_cast<size_t>(min_size) > active_) {
    throw ArgumentError("this pool starts no interpreters, and has " + std::to_string(active_));
  }
  max_size_ = static_cast<size_t>(max_size);
  // What the pool has grown by serves on if nothing but the maximum changes.
  capacity_ = static_cast<size_t>(min_size) == min_size_ ? std::min(capacity_, max_size_.load())
                                                         : static_cast<size_t>(min_size);
  min_size_ = static_cast<size_t>(min_size);
  review_at_ = Clock::now();
  dispatch();
  if (!closed_ && (active_ != min_size_ || !queue_.empty())) {
    wake_autoscaler();
  }
}

void Pool::limit(int64_t count) {
  const Locked locked(*this);
  const size_t most = std::max(active_, min_size_.load());
  if (count < 1 || static_cast<size_t>(count) > most) {
    const std::string size = std::to_string(most);
    throw ArgumentError("a pool of " + size + " interpreters can be limited to 1 to " + size + ", not " +
                        std::to_string(count));
  }
  // All that there are is no limit, for those as well that come later.
  limit_ = static_cast<size_t>(count) == most ? SIZE_MAX : static_cast<size_t>(count);
  dispatch();
}

void Pool::set_share(const std::string& affinity, int64_t most) {
  if (most < 1) {
    throw ArgumentError("a share is at least one interpreter, not " + std::to_string(most));
  }
  const Locked locked(*this);
  queue_.flow(affinity).share = static_cast<size_t>(most);
  dispatch();
}

void Pool::introduce(Interpreter& interpreter, std::weak_ptr<Leaseholder> holder) {
  const std::lock_guard lock(mutex_);
  if (Slot* slot = slot_of(interpreter)) {
    slot->holder = std::move(holder);
  }
}

void Pool::wake_all() {
  for (const Flow* flow : queue_.waiting()) {
    for (Waiter* waiter : flow->waiters) {
      waiter->wake.notify_one();
    }
  }
}

void Pool::close() {
  {
    const Locked locked(*this);
    closed_ = true;
    ending_ = false;
    wake_all();
    autoscaler_.notify_one();
    started_.notify_all();
  }
  for (const Status& slot : status()) {
    ModelThread::forget_all(*slot.interpreter);
  }
}

void Pool::close_for_good() {
  const Locked locked(*this);
  ending_ = ending_ || !closed_;
  closed_ = true;
  autoscaler_.notify_one();
}

std::vector<Interpreter*> Pool::give_up(const Origin& origin, size_t most) {
  const std::lock_guard lock(mutex_);
  std::vector<Interpreter*> given;
  if (!closed_ || ran_in_all_ || origin != options_.origin) {
    return given;
  }
  for (Slot& slot : slots_) {
    const bool idle = slot.state == State::kFree || slot.state == State::kParked;
    if (given.size() < most && idle && !slot.parking.has_value() && slot.leases == 0 &&
        !slot.interpreter->wants_to_retire()) {
      active_ -= slot.state == State::kFree ? 1 : 0;  // those with owners have been leased
      slot.state = State::kGivenUp;
      given.push_back(slot.interpreter);
    }
  }
  return given;
}

bool Pool::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Pool::tell_all(const std::string& module, const std::string& function, const Value& argument,
                    double patience) {
  {
    const std::lock_guard lock(mutex_);
    ran_in_all_ = true;
  }
  std::vector<Interpreter*> interpreters;
  for (const Status& status : status()) {
    if (status.state != State::kRetired) {
      interpreters.push_back(status.interpreter);
    }
  }
  const auto tell = [module, function, argument](Interpreter& interpreter) {
    const Held callable(interpreter, interpreter.global(module, function));
    interpreter.release(interpreter.call(callable.get(), {argument}, {}, nullptr));
  };
  visit_each(interpreters, tell, patience);
}

void Pool::visit_leased(const std::function<void(Interpreter&)>& visit) {
  std::vector<Interpreter*> interpreters;
  for (const Status& status : status()) {
    if (status.state != State::kRetired && status.leases > 0) {
      interpreters.push_back(status.interpreter);
    }
  }
  visit_each(interpreters, visit, 0);
}

}  // namespace interpool
