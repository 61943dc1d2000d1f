#include "pool.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "visits.h"

namespace interpool {
namespace {

constexpr const char* kClosed = "the pool of interpreters is closed; make a new InterpreterManager to go on.";

int this_thread() {
  thread_local const int number = static_cast<int>(syscall(SYS_gettid));
  return number;
}

}  // namespace

Pool::Pool(std::vector<Interpreter*> interpreters, PoolOptions options)
    : options_([&] {
        options.ceiling = std::max(options.ceiling, interpreters.size());
        return std::move(options);
      }()),
      floor_(interpreters.size()),
      seats_(interpreters.begin(), interpreters.end()),
      active_(interpreters.size()) {}

void Pool::refuse_if_hopeless(std::optional<int> only) const {
  if (closed_) {
    throw PoolClosedError(kClosed);
  }
  if (active_ == 0 && !failure_.empty()) {
    throw InterpreterStartError("every interpreter of the pool was retired, and no other starts: " +
                                failure_);
  }
  if (!only.has_value()) {
    return;
  }
  for (const Seat& seat : seats_) {
    if (seat.interpreter->id() == *only && seat.state != State::kRetired) {
      return;
    }
  }
  throw InterpreterRetiredError("interpreter " + std::to_string(*only) +
                                " was retired, or never was one of this pool's; acquire any other.");
}

// Whether a waiter who wants `only` that one may have this seat, once it is free.
bool Pool::may_take(const Seat& seat, std::optional<int> only) const {
  if (only.has_value()) {
    return seat.interpreter->id() == *only;
  }
  if (limit_ >= seats_.size()) {
    return true;
  }
  const auto end = seats_.begin() + static_cast<std::ptrdiff_t>(limit_);
  return std::any_of(seats_.begin(), end, [&](const Seat& one) { return &one == &seat; });
}

Pool::Seat* Pool::free_seat(const std::string& affinity, std::optional<int> only) {
  Seat* best = nullptr;
  for (Seat& seat : seats_) {
    if (only.has_value() && seat.interpreter->id() == *only && seat.state == State::kParked) {
      seat.state = State::kFree;  // asked for by name; the keeper parks it again
      ++active_;
      call_keeper();
    }
    if (seat.state != State::kFree || !may_take(seat, only)) {
      continue;
    }
    if (affinity.empty() || seat.affinities.count(affinity) != 0) {
      return &seat;
    }
    // Among strangers, the one with the fewest models: they spread evenly.
    if (best == nullptr || seat.affinities.size() < best->affinities.size()) {
      best = &seat;
    }
  }
  return best;
}

Pool::Seat* Pool::seat_of(const Interpreter& interpreter) {
  const auto found = std::find_if(seats_.begin(), seats_.end(),
                                  [&](const Seat& seat) { return seat.interpreter == &interpreter; });
  return found == seats_.end() ? nullptr : &*found;
}

void Pool::take(Seat& seat, const std::string& affinity, int thread) {
  seat.state = State::kLeased;
  ++seat.leases;
  seat.thread = thread;
  seat.leased_at = Clock::now();
  if (!affinity.empty()) {
    seat.affinities.insert(affinity);
  }
  ++leased_;
  wanted_ = std::max(wanted_, leased_ + waiters_.size());
}

void Pool::offer(Seat& seat) {
  seat.state = State::kFree;
  const auto next = std::find_if(waiters_.begin(), waiters_.end(),
                                 [&](const Waiter* waiter) { return may_take(seat, waiter->only); });
  if (next == waiters_.end()) {
    return;
  }
  Waiter& waiter = **next;
  waiters_.erase(next);
  take(seat, waiter.affinity, waiter.thread);
  waiter.seat = &seat;
  waiter.wake.notify_one();
}

Interpreter& Pool::acquire(const std::string& affinity, std::optional<double> timeout,
                           std::optional<int> only) {
  Interpreter& interpreter = lease(affinity, timeout, only);
  interpreter.begin_lease(affinity);
  return interpreter;
}

Interpreter& Pool::lease(const std::string& affinity, std::optional<double> timeout,
                         std::optional<int> only) {
  std::unique_lock lock(mutex_);
  refuse_if_hopeless(only);
  // One that is free is one that no waiter can take.
  if (Seat* seat = free_seat(affinity, only)) {
    take(*seat, affinity, this_thread());
    return *seat->interpreter;
  }
  Waiter waiter{{}, affinity, only, this_thread()};
  const auto place = waiters_.insert(waiters_.end(), &waiter);
  if (!only.has_value() && may_grow()) {
    call_keeper();
  }
  const auto deadline = Clock::now() + seconds(timeout.value_or(kForever));
  for (;;) {
    const bool in_time = timeout.value_or(kForever) >= kForever
                             ? (waiter.wake.wait(lock), true)
                             : waiter.wake.wait_until(lock, deadline) == std::cv_status::no_timeout;
    if (waiter.seat != nullptr) {  // offer() took the waiter off the list
      return *waiter.seat->interpreter;
    }
    try {
      refuse_if_hopeless(only);
    } catch (...) {
      waiters_.erase(place);
      throw;
    }
    if (!in_time) {
      break;
    }
  }
  waiters_.erase(place);
  const std::string who = only.has_value() ? "interpreter " + std::to_string(*only) + " did not become"
                                           : std::string("no interpreter became");
  throw LeaseTimeoutError(who + " free within " + std::to_string(*timeout) + " s: all " +
                          std::to_string(active_) +
                          " are leased. Close sessions sooner, wait longer, or make the pool "
                          "larger.");
}

void Pool::release(Interpreter& interpreter) {
  const std::lock_guard lock(mutex_);
  Seat* seat = seat_of(interpreter);
  if (seat == nullptr || seat->state != State::kLeased) {
    return;
  }
  --leased_;
  seat->holder.reset();
  offer(*seat);
}

void Pool::retire(Interpreter& interpreter) {
  const std::lock_guard lock(mutex_);
  Seat* seat = seat_of(interpreter);
  if (seat == nullptr || seat->state != State::kLeased) {
    return;
  }
  --leased_;
  --active_;
  seat->state = State::kRetired;
  interpreter.abandon();
  seat->holder.reset();
  seat->affinities.clear();
  wake_all();  // somebody may wait for this very one
  if (!options_.start) {
    failure_ = "this pool starts none.";
  } else if (!closed_) {
    call_keeper();
  }
}

void Pool::limit(size_t count) {
  const std::lock_guard lock(mutex_);
  limit_ = count;
  for (Seat& seat : seats_) {
    if (seat.state == State::kFree) {
      offer(seat);
    }
  }
}

void Pool::register_module_source(const std::string& name, const std::string& source) {
  const std::lock_guard lock(mutex_);
  sources_[name] = source;
}

std::optional<Services::ModuleSource> Pool::module_source(const std::string& name, int interpreter) const {
  const std::lock_guard lock(mutex_);
  const auto found = sources_.find(name);
  if (found == sources_.end() || std::none_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
        return seat.interpreter->id() == interpreter;
      })) {
    return std::nullopt;
  }
  const auto next = sources_.upper_bound(name + ".");
  return Services::ModuleSource{found->second, next != sources_.end() && next->first.starts_with(name + ".")};
}

void Pool::introduce(Interpreter& interpreter, std::weak_ptr<Leaseholder> holder) {
  const std::lock_guard lock(mutex_);
  if (Seat* seat = seat_of(interpreter)) {
    seat->holder = std::move(holder);
  }
}

void Pool::wake_all() {
  for (Waiter* waiter : waiters_) {
    waiter->wake.notify_one();
  }
}

void Pool::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  wake_all();
  keeper_.notify_one();
}

void Pool::close_for_good() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  keeper_.notify_one();
}

bool Pool::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Pool::forget(const std::string& affinity) {
  std::vector<Interpreter*> interpreters;
  {
    const std::lock_guard lock(mutex_);
    for (Seat& seat : seats_) {
      seat.affinities.erase(affinity);
      interpreters.push_back(seat.interpreter);
    }
  }
  for (Interpreter* interpreter : interpreters) {
    interpreter->forget_model(affinity);
  }
}

void Pool::tell_all(const std::string& module, const std::string& function, const Value& argument,
                    double patience) {
  std::vector<Interpreter*> interpreters;
  for (const Status& status : status()) {
    if (status.state != State::kRetired) {
      interpreters.push_back(status.interpreter);
    }
  }
  const auto tell = [module, function, argument](Interpreter& interpreter) {
    const Held callable(interpreter, interpreter.global(module, function));
    interpreter.release(interpreter.call(callable.get(), {argument}, {}));
  };
  visit_each(interpreters, tell, patience);
}

std::vector<Pool::Status> Pool::status() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<Status> all;
  for (const Seat& seat : seats_) {
    all.push_back({seat.interpreter,
                   seat.state,
                   seat.leases,
                   {seat.affinities.begin(), seat.affinities.end()},
                   seat.thread,
                   std::chrono::duration<double>(now - seat.leased_at).count(),
                   seat.holder});
  }
  return all;
}

size_t Pool::size() const {
  const std::lock_guard lock(mutex_);
  return active_;
}

size_t Pool::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiters_.size();
}

bool Pool::is_growing() const {
  const std::lock_guard lock(mutex_);
  return growing_;
}

}  // namespace interpool
