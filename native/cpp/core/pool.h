// The load balancer: who has which interpreter. It has no threads of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../seam/interpreter.h"

namespace interpool {

// Any thread may call anything; callers hold no GIL, as acquire() blocks.
// `mutex_` guards all state and is a leaf lock.
class Pool {
 public:
  explicit Pool(std::vector<Interpreter*> interpreters);

  // A free interpreter, one that has served `affinity` first; else waits its
  // turn, first come first served. Throws LeaseTimeoutError after `timeout`
  // seconds, PoolClosedError once the pool is closed.
  Interpreter& acquire(const std::string& affinity, std::optional<double> timeout);
  void release(Interpreter& interpreter);

  // Waiting and later callers get PoolClosedError; leases that are out stay good.
  void close();

  // No longer prefers anybody for `affinity`: its model is gone.
  void forget(const std::string& affinity);

  // Calls `module.function(argument)` in every interpreter, on its own thread and
  // beside whoever leases it. Waits `patience` seconds at the most for all to be
  // done; what it raises goes to stderr.
  void tell_all(const std::string& module, const std::string& function, const Value& argument,
                double patience = 0);

  struct Status {
    int interpreter;
    bool leased;
    uint64_t leases;  // since the start
    std::vector<std::string> affinities;
  };
  std::vector<Status> status() const;
  size_t size() const { return seats_.size(); }
  size_t waiting() const;

 private:
  Interpreter& lease(const std::string& affinity, std::optional<double> timeout);

  struct Seat {
    Interpreter* interpreter;
    bool leased = false;
    uint64_t leases = 0;
    std::set<std::string> affinities;
  };
  struct Waiter {
    std::condition_variable wake;
    Seat* seat = nullptr;
  };

  Seat* free_seat(const std::string& affinity);
  static void take(Seat& seat, const std::string& affinity);

  mutable std::mutex mutex_;
  std::vector<Seat> seats_;
  std::list<Waiter*> waiters_;
  bool closed_ = false;
};

}  // namespace interpool
