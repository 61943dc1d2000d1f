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
        options.max_size = std::max(options.max_size, interpreters.size());
        return std::move(options);
      }()),
      min_size_(interpreters.size()),
      slots_(interpreters.begin(), interpreters.end()),
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
  for (const Slot& slot : slots_) {
    if (slot.interpreter->id() == *only && slot.state != State::kRetired) {
      return;
    }
  }
  throw InterpreterRetiredError("interpreter " + std::to_string(*only) +
                                " was retired, or never was one of this pool's; acquire any other.");
}

// Whether a waiter who wants `only` that one may have this slot, once it is free.
bool Pool::may_take(const Slot& slot, std::optional<int> only) const {
  if (only.has_value()) {
    return slot.interpreter->id() == *only;
  }
  if (limit_ >= slots_.size()) {
    return true;
  }
  const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(limit_);
  return std::any_of(slots_.begin(), end, [&](const Slot& one) { return &one == &slot; });
}

Pool::Slot* Pool::free_slot(const std::string& affinity, std::optional<int> only) {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    if (only.has_value() && slot.interpreter->id() == *only && slot.state == State::kParked) {
      slot.state = State::kFree;  // asked for by name; the autoscaler parks it again
      ++active_;
      wake_autoscaler();
    }
    if (slot.state != State::kFree || !may_take(slot, only)) {
      continue;
    }
    if (affinity.empty() || slot.affinities.count(affinity) != 0) {
      return &slot;
    }
    // Among strangers, the one with the fewest models: they spread evenly.
    if (best == nullptr || slot.affinities.size() < best->affinities.size()) {
      best = &slot;
    }
  }
  return best;
}

Pool::Slot* Pool::slot_of(const Interpreter& interpreter) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const Slot& slot) { return slot.interpreter == &interpreter; });
  return found == slots_.end() ? nullptr : &*found;
}

void Pool::take(Slot& slot, const std::string& affinity, int thread) {
  slot.state = State::kLeased;
  ++slot.leases;
  slot.thread = thread;
  slot.leased_at = Clock::now();
  if (!affinity.empty()) {
    slot.affinities.insert(affinity);
  }
  ++leased_;
  wanted_ = std::max(wanted_, leased_ + waiters_.size());
}

void Pool::offer(Slot& slot) {
  slot.state = State::kFree;
  const auto next = std::find_if(waiters_.begin(), waiters_.end(),
                                 [&](const Waiter* waiter) { return may_take(slot, waiter->only); });
  if (next == waiters_.end()) {
    return;
  }
  Waiter& waiter = **next;
  waiters_.erase(next);
  take(slot, waiter.affinity, waiter.thread);
  waiter.slot = &slot;
  waiter.wake.notify_one();
}

Interpreter& Pool::acquire(const std::string& affinity, std::optional<double> timeout,
                           std::optional<int> only) {
  if (timeout.has_value() && !(*timeout >= 0)) {
    throw ArgumentError("a timeout is a number of seconds, not " + number_text(*timeout));
  }
  Interpreter& interpreter = lease(affinity, timeout, only);
  interpreter.begin_lease(affinity);
  return interpreter;
}

Interpreter& Pool::lease(const std::string& affinity, std::optional<double> timeout,
                         std::optional<int> only) {
  std::unique_lock lock(mutex_);
  refuse_if_hopeless(only);
  // One that is free is one that no waiter can take.
  if (Slot* slot = free_slot(affinity, only)) {
    take(*slot, affinity, this_thread());
    return *slot->interpreter;
  }
  Waiter waiter{{}, affinity, only, this_thread()};
  const auto place = waiters_.insert(waiters_.end(), &waiter);
  if (!only.has_value() && may_grow()) {
    wake_autoscaler();
  }
  const auto deadline = Clock::now() + seconds(timeout.value_or(kForever));
  for (;;) {
    const bool in_time = timeout.value_or(kForever) >= kForever
                             ? (waiter.wake.wait(lock), true)
                             : waiter.wake.wait_until(lock, deadline) == std::cv_status::no_timeout;
    if (waiter.slot != nullptr) {  // offer() took the waiter off the list
      return *waiter.slot->interpreter;
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
  Slot* slot = slot_of(interpreter);
  if (slot == nullptr || slot->state != State::kLeased) {
    return;
  }
  --leased_;
  slot->holder.reset();
  offer(*slot);
}

void Pool::retire(Interpreter& interpreter) {
  const std::lock_guard lock(mutex_);
  Slot* slot = slot_of(interpreter);
  if (slot == nullptr || slot->state != State::kLeased) {
    return;
  }
  --leased_;
  --active_;
  slot->state = State::kRetired;
  interpreter.abandon();
  slot->holder.reset();
  slot->affinities.clear();
  wake_all();  // somebody may wait for this very one
  if (!options_.start) {
    failure_ = "this pool starts none.";
  } else if (!closed_) {
    wake_autoscaler();
  }
}

void Pool::limit(int64_t count) {
  const std::lock_guard lock(mutex_);
  if (count < 1 || static_cast<size_t>(count) > active_) {
    const std::string size = std::to_string(active_);
    throw ArgumentError("a pool of " + size + " interpreters can be limited to 1 to " + size + ", not " +
                        std::to_string(count));
  }
  limit_ = static_cast<size_t>(count);
  for (Slot& slot : slots_) {
    if (slot.state == State::kFree) {
      offer(slot);
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
  if (found == sources_.end() || std::none_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
        return slot.interpreter->id() == interpreter;
      })) {
    return std::nullopt;
  }
  const auto next = sources_.upper_bound(name + ".");
  return Services::ModuleSource{found->second, next != sources_.end() && next->first.starts_with(name + ".")};
}

void Pool::introduce(Interpreter& interpreter, std::weak_ptr<Leaseholder> holder) {
  const std::lock_guard lock(mutex_);
  if (Slot* slot = slot_of(interpreter)) {
    slot->holder = std::move(holder);
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
  autoscaler_.notify_one();
}

void Pool::close_for_good() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  autoscaler_.notify_one();
}

bool Pool::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Pool::forget(const std::string& affinity) {
  std::vector<Interpreter*> interpreters;
  {
    const std::lock_guard lock(mutex_);
    for (Slot& slot : slots_) {
      slot.affinities.erase(affinity);
      interpreters.push_back(slot.interpreter);
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
  for (const Slot& slot : slots_) {
    all.push_back({slot.interpreter,
                   slot.state,
                   slot.leases,
                   {slot.affinities.begin(), slot.affinities.end()},
                   slot.thread,
                   std::chrono::duration<double>(now - slot.leased_at).count(),
                   slot.holder});
  }
  return all;
}

std::vector<int> Pool::instances() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> all;
  for (const Slot& slot : slots_) {
    if (slot.state != State::kRetired) {
      all.push_back(slot.interpreter->id());
    }
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
