// The order in which those who wait get interpreters: fairly over models, and first come first served within
// one.
//
// It is that of start-time fair queuing, as extended to servers that work on several requests at once,
// SFQ(D). Goyal, Vin, Cheng: "Start-time Fair Queuing: A Scheduling Algorithm for Integrated Services Packet
// Switching Networks", SIGCOMM 1996. Jin, Chase, Kaur: "Interposed Proportional Sharing for a Storage Service
// Utility", SIGMETRICS 2004.
//
// - A *flow* is all leases under one affinity: one model's batches. Leases without an affinity are one flow.
//   A flow's *tag* is the interpreter time that it has had. A lease counts while it runs, as its length is
//   not known beforehand.
// - The *virtual time* is the largest tag with which a lease has begun. As leases may be long, it goes on
//   with those that run, up to the least tag of a flow that waits. A flow that comes back after a pause
//   starts there: time that it did not use is not saved.
// - Next is the flow with the smallest tag among those that wait and may have one more.
//
// So a flow that waits is passed at most once by each other flow that has had no more than itself. There are
// two exceptions: the pool defers its load (Pool::is_load_deferred), and another one's turn goes on
// (Pool::next_turn). No flow waits for ever. Leases are not preempted: see Pool on the reserve.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "clock.h"

namespace interpool {

class LeaseListener;

// Guarded by its owner's mutex. It calls no other code.
class FairQueue {
 public:
  struct Flow;
  struct Waiter {
    Flow& flow;
    const std::optional<int> only;  // a certain interpreter
    const int thread;
    const Clock::time_point since;
    void* granted = nullptr;  // what it waited for
    std::condition_variable wake = {};
    LeaseListener* listener = nullptr;  // hears of it; null: a thread waits
  };
  struct Flow {
    explicit Flow(std::string affinity) : name(std::move(affinity)) {}

    const std::string name;
    size_t share = SIZE_MAX;  // the most leases that it may have at once
    size_t running = 0;
    // Interpreters that this flow has to itself. None: it shares all with others.
    struct Own {
      size_t have = 0;
      size_t wanted = 1;
    };
    std::optional<Own> own = {};
    std::list<Waiter*> waiters;  // in the order in which they came

    // Whether it may have no more, even if others give some back.
    bool is_held_back() const { return running >= share || (own.has_value() && running >= own->have); }
    bool is_forgotten() const { return forgotten; }

   private:
    friend class FairQueue;
    double tag = 0;          // without the leases that run
    double began = 0;        // the sum of when they began
    bool behind = false;     // when it began to wait, see is_behind()
    bool forgotten = false;  // since it was last asked for
  };

  // The flow of that name; stays where it is as long as it runs or waits. `now` is the
  // time of all calls below: seconds on a clock that never goes back.
  Flow& flow(const std::string& name);
  // Its share, and what it has to itself; and all of it, once nothing runs or waits.
  void forget(const std::string& name);

  void wait(Waiter& waiter, double now);
  void stop_waiting(Waiter& waiter);   // granted, then after begin(); or not
  void begin(Flow& flow, double now);  // a lease
  void end(Flow& flow, double began, double now);

  // Whether the flow has no lease and is behind. It is if it had no more than its fair part when it last
  // came: its tag was hardly beyond the virtual time. It also is if it has waited for kLongWait. The pool
  // grows for such a flow, so that it need not wait for the end of others' leases.
  static constexpr std::chrono::seconds kLongWait{5};
  bool is_behind(const Flow& flow, double now) const;
  // The flow whose turn it is, among those that wait and that `may` accepts.
  Flow* next(double now, const std::function<bool(const Flow&)>& may) const;

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return size_; }
  const std::vector<Flow*>& waiting() const { return waiting_; }  // flows that wait
  const std::map<std::string, Flow>& flows() const { return flows_; }

 private:
  double tag_of(const Flow& flow, double now) const;
  double virtual_time(const Flow& except, double now) const;
  void enter(Flow& flow, double now);
  void drop_if_forgotten(const Flow& flow);  // which is not used after this
  void purge();

  std::map<std::string, Flow> flows_;
  std::vector<Flow*> waiting_;
  std::vector<Flow*> running_;
  size_t size_ = 0;  // waiters, in all
  double virtual_time_ = 0;
};

}  // namespace interpool
