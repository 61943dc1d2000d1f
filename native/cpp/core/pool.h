// The load balancer: who has which interpreter. It has no threads of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <interpool/export.h>

#include "../seam/interpreter.h"

namespace interpool {

// Any thread may call anything; callers hold no GIL, as acquire() blocks.
// `mutex_` guards all state and is a leaf lock.
class INTERPOOL_PUBLIC Pool {
 public:
  explicit Pool(std::vector<Interpreter*> interpreters);

  // A free interpreter, one that has served `affinity` first; else waits its
  // turn, first come first served. With `only`, that very interpreter. Throws
  // LeaseTimeoutError after `timeout` seconds, PoolClosedError once the pool is
  // closed, SessionError when the pool has no interpreter `only`.
  Interpreter& acquire(const std::string& affinity, std::optional<double> timeout,
                       std::optional<int> only = std::nullopt);
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

  // Leases its first `count` interpreters only, from now on.
  void limit(size_t count);

  // What its interpreters import under that name when nothing else is found.
  void register_module_source(const std::string& name, const std::string& source);
  // nullopt also when `interpreter` is none of this pool.
  std::optional<Services::ModuleSource> module_source(const std::string& name, int interpreter) const;

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
  Interpreter& lease(const std::string& affinity, std::optional<double> timeout, std::optional<int> only);

  struct Seat {
    Interpreter* interpreter;
    bool leased = false;
    uint64_t leases = 0;
    std::set<std::string> affinities;
  };
  struct Waiter {
    const std::string& affinity;
    const std::optional<int> only;
    std::condition_variable wake;
    Seat* seat = nullptr;
  };

  bool may_have(const Seat& seat, std::optional<int> only) const;
  Seat* free_seat(const std::string& affinity, std::optional<int> only);
  void serve_waiters();
  static void take(Seat& seat, const std::string& affinity);

  mutable std::mutex mutex_;
  std::vector<Seat> seats_;
  std::list<Waiter*> waiters_;
  size_t limit_;
  std::map<std::string, std::string> sources_;
  bool closed_ = false;
};

}  // namespace interpool
