#include "pool.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

namespace interpool {
namespace {

constexpr double kForever = 1e8;  // seconds; more overflows the clock

constexpr const char* kClosed = "the pool of interpreters is closed; make a new InterpreterManager to go on.";

}  // namespace

Pool::Pool(std::vector<Interpreter*> interpreters) : limit_(interpreters.size()) {
  seats_.reserve(interpreters.size());
  for (Interpreter* interpreter : interpreters) {
    Seat seat;
    seat.interpreter = interpreter;
    seats_.push_back(std::move(seat));
  }
}

bool Pool::may_have(const Seat& seat, std::optional<int> only) const {
  const auto place = static_cast<size_t>(&seat - seats_.data());
  return !seat.leased && (only.has_value() ? seat.interpreter->id() == *only : place < limit_);
}

Pool::Seat* Pool::free_seat(const std::string& affinity, std::optional<int> only) {
  Seat* best = nullptr;
  for (Seat& seat : seats_) {
    if (!may_have(seat, only)) {
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

void Pool::take(Seat& seat, const std::string& affinity) {
  seat.leased = true;
  ++seat.leases;
  if (!affinity.empty()) {
    seat.affinities.insert(affinity);
  }
}

// First come, first served; one who wants an interpreter that is out lets others pass.
void Pool::serve_waiters() {
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    Waiter& waiter = **it;
    Seat* seat = free_seat(waiter.affinity, waiter.only);
    if (seat == nullptr) {
      ++it;
      continue;
    }
    take(*seat, waiter.affinity);
    waiter.seat = seat;
    it = waiters_.erase(it);
    waiter.wake.notify_one();
  }
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
  if (closed_) {
    throw PoolClosedError(kClosed);
  }
  if (only.has_value() && std::none_of(seats_.begin(), seats_.end(),
                                       [&](const Seat& seat) { return seat.interpreter->id() == *only; })) {
    throw SessionError("interpreter " + std::to_string(*only) + " is none of this pool's.");
  }
  Waiter waiter{affinity, only, {}, nullptr};
  const auto place = waiters_.insert(waiters_.end(), &waiter);
  serve_waiters();
  const auto ready = [&] { return waiter.seat != nullptr || closed_; };
  if (timeout.has_value() && *timeout < kForever) {
    waiter.wake.wait_for(lock, std::chrono::duration<double>(*timeout), ready);
  } else {
    waiter.wake.wait(lock, ready);
  }
  if (waiter.seat != nullptr) {  // serve_waiters() took the waiter off the list
    return *waiter.seat->interpreter;
  }
  waiters_.erase(place);
  if (closed_) {
    throw PoolClosedError(kClosed);
  }
  throw LeaseTimeoutError("no interpreter became free within " + std::to_string(*timeout) + " s: all " +
                          std::to_string(seats_.size()) +
                          " are leased. Close sessions sooner, wait longer, or make the pool "
                          "larger.");
}

void Pool::release(Interpreter& interpreter) {
  const std::lock_guard lock(mutex_);
  for (Seat& seat : seats_) {
    if (seat.interpreter == &interpreter) {
      seat.leased = false;
    }
  }
  serve_waiters();
}

void Pool::limit(size_t count) {
  const std::lock_guard lock(mutex_);
  limit_ = count;
  serve_waiters();
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

void Pool::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (Waiter* waiter : waiters_) {
    waiter->wake.notify_one();
  }
}

void Pool::forget(const std::string& affinity) {
  for (Seat& seat : seats_) {
    seat.interpreter->forget_model(affinity);
    const std::lock_guard lock(mutex_);
    seat.affinities.erase(affinity);
  }
}

void Pool::tell_all(const std::string& module, const std::string& function, const Value& argument,
                    double patience) {
  struct Pending {
    std::mutex mutex;
    std::condition_variable done;
    size_t count = 0;
  };
  auto pending = std::make_shared<Pending>();
  pending->count = seats_.size();
  for (const Seat& seat : seats_) {
    seat.interpreter->later([interpreter = seat.interpreter, pending, module, function, argument] {
      {
        const Entered entered(*interpreter);
        void* callable = nullptr;
        try {
          callable = interpreter->global(module, function);
          interpreter->release(interpreter->call(callable, {argument}, {}));
        } catch (const Error& error) {
          std::fprintf(stderr, "interpool: interpreter %d: %s\n", interpreter->id(), error.what());
        }
        if (callable != nullptr) interpreter->release(callable);
      }
      const std::lock_guard lock(pending->mutex);
      --pending->count;
      pending->done.notify_all();
    });
  }
  std::unique_lock lock(pending->mutex);
  pending->done.wait_for(lock, std::chrono::duration<double>(patience), [&] { return pending->count == 0; });
}

std::vector<Pool::Status> Pool::status() const {
  const std::lock_guard lock(mutex_);
  std::vector<Status> all;
  for (const Seat& seat : seats_) {
    all.push_back(
        {seat.interpreter->id(), seat.leased, seat.leases, {seat.affinities.begin(), seat.affinities.end()}});
  }
  return all;
}

size_t Pool::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiters_.size();
}

}  // namespace interpool
