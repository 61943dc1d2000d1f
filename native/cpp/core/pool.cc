#include "pool.h"

#include <chrono>
#include <cstdio>
#include <memory>

namespace interpool {
namespace {

constexpr double kForever = 1e8;  // seconds; more overflows the clock

constexpr const char* kClosed = "the pool of interpreters is closed; make a new InterpreterManager to go on.";

}  // namespace

Pool::Pool(std::vector<Interpreter*> interpreters) {
  seats_.reserve(interpreters.size());
  for (Interpreter* interpreter : interpreters) {
    Seat seat;
    seat.interpreter = interpreter;
    seats_.push_back(std::move(seat));
  }
}

Pool::Seat* Pool::free_seat(const std::string& affinity) {
  Seat* best = nullptr;
  for (Seat& seat : seats_) {
    if (seat.leased) {
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

Interpreter& Pool::acquire(const std::string& affinity, std::optional<double> timeout) {
  Interpreter& interpreter = lease(affinity, timeout);
  interpreter.begin_lease(affinity);
  return interpreter;
}

Interpreter& Pool::lease(const std::string& affinity, std::optional<double> timeout) {
  std::unique_lock lock(mutex_);
  if (closed_) {
    throw PoolClosedError(kClosed);
  }
  if (waiters_.empty()) {
    if (Seat* seat = free_seat(affinity)) {
      take(*seat, affinity);
      return *seat->interpreter;
    }
  }
  Waiter waiter;
  const auto place = waiters_.insert(waiters_.end(), &waiter);
  const auto ready = [&] { return waiter.seat != nullptr || closed_; };
  if (timeout.has_value() && *timeout < kForever) {
    waiter.wake.wait_for(lock, std::chrono::duration<double>(*timeout), ready);
  } else {
    waiter.wake.wait(lock, ready);
  }
  if (waiter.seat != nullptr) {  // release() took the waiter off the list
    if (!affinity.empty()) {
      waiter.seat->affinities.insert(affinity);
    }
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
    if (seat.interpreter != &interpreter) {
      continue;
    }
    if (waiters_.empty()) {
      seat.leased = false;
      return;
    }
    Waiter* next = waiters_.front();
    waiters_.pop_front();
    ++seat.leases;
    next->seat = &seat;
    next->wake.notify_one();
    return;
  }
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
