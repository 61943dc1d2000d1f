// The load balancer: who has which interpreter.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <interpool/export.h>

#include "../seam/interpreter.h"
#include "clock.h"
#include "fair_queue.h"
#include "lease_counters.h"
#include "module_sources.h"

namespace interpool {

// The holder of a lease, for reports of what was not given back.
class INTERPOOL_PUBLIC Leaseholder {
 public:
  // The labels of the objects that it holds. Its interpreter is entered.
  virtual std::vector<std::string> holds(Interpreter& interpreter) = 0;

 protected:
  ~Leaseholder() = default;
};

// Gets a lease without a thread that waits for it.
class INTERPOOL_PUBLIC LeaseListener {
 public:
  // A lease has begun. Null: it is not waited for any more, and acquire() waits, or says why none is to be
  // had. On any thread, which holds no lock and perhaps the host's GIL; must not wait.
  virtual void leased(Interpreter* interpreter) noexcept = 0;

 protected:
  ~LeaseListener() = default;
};

// While it lives, its thread calls `look` now and then while it waits for a lease, under no lock. What
// that throws ends the wait.
class INTERPOOL_PUBLIC WatchedWait {
 public:
  explicit WatchedWait(std::function<void()> look);
  ~WatchedWait();
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

 private:
  friend class Pool;
  const std::function<void()> look_;
  WatchedWait* const outer_;
};

// What an interpreter is made of at its start. Interpreters of equal origin that were never leased are equal.
struct Origin {
  std::vector<std::string> search_path;
  std::vector<std::string> preload;
  std::vector<std::string> environment;  // the process's, sorted: Python keeps a copy of it

  bool operator==(const Origin&) const = default;
};

struct PoolOptions {
  size_t max_size = 0;     // 0: as many interpreters as there are
  double park_after = 60;  // seconds without need, for one above the minimum size
  double grace = 5;        // seconds that an interrupted call has to come back
  Origin origin;           // of the interpreters that it is given
  // Starts one more. None: the pool neither grows nor replaces what is retired.
  std::function<Interpreter*()> start;
};

// Any thread may call anything; callers hold no GIL, as acquire() blocks.
// `mutex_` guards all state and is a leaf lock.
//
// As long as it has what it needs, it has no threads of its own. If it may grow and a caller waits, or if an
// interpreter was retired, the *autoscaler* runs (autoscaler.cc). It is one thread, which ends when the pool
// is back at its minimum size.
//
// Callers that wait are served fairly over models (fair_queue.h). With a fair order alone, a model would
// still wait until another one's call ends. So if the pool may grow, it keeps a *reserve*: interpreters above
// its *capacity*. Only those models may lease them that have none and had no more than their fair part
// lately. They run at once beside the others, and the kernel divides the cores, as between processes. A pool
// of an exact size has no reserve.
//
// An interpreter in which a model has left something that others would meet has an *owner* from then on. So
// has each that is started for this model. No other flow leases them, and the owner's leases no other. They
// count for none of the sizes. An owner has as many as its callers wait for, up to the minimum size, and one
// for each caller that has one assigned. They are retired when it is forgotten.
class INTERPOOL_PUBLIC Pool : public std::enable_shared_from_this<Pool> {
 public:
  // The interpreters that it is given are its minimum size.
  explicit Pool(std::vector<Interpreter*> interpreters, PoolOptions options = {});

  // A free interpreter, one that has served `affinity` first, or `only` that one; else waits its turn. If the
  // call `runs_here`, on the calling thread, it gets the one that this thread leased last, if that is free
  // and has served `affinity`. The thread's core has it in its caches. Throws LeaseTimeoutError after
  // `timeout` seconds, PoolClosedError once the pool is closed, and ArgumentError for an invalid timeout.
  // Throws InterpreterRetiredError if the wanted one is no longer the pool's.
  Interpreter& acquire(const std::string& affinity, std::optional<double> timeout,
                       std::optional<int> only = std::nullopt, bool runs_here = true);
  // The same without a thread that waits: `listener` hears of it, perhaps before this returns. False: it
  // hears nothing, and is to use acquire(), which knows interpreters of `affinity`'s own, errors and time
  // limits.
  bool acquire_for(const std::string& affinity, std::shared_ptr<LeaseListener> listener);
  // Has it hear nothing; false if it has heard, or hears just now.
  bool stop_waiting(const LeaseListener& listener);
  // What a lease has answered, all of it by one batch.
  struct Requests {
    size_t count = 0;
    bool failed = false;
  };
  void release(Interpreter& interpreter, Requests answered = {0, false});

  // Never leases this one again, and has another one started in its place. Called by the
  // leaseholder, who then does not release it.
  void retire(Interpreter& interpreter, Requests answered = {0, false});

  // An interpreter, by number, for a caller that is to get the same one for `affinity` each time. It is the
  // one that fewest such callers have; nullopt if every one is lost. It is not parked before unassign().
  // Waits if every one has such callers and more are on their way. Of interpreters that `affinity` has to
  // itself, there are as many as such callers. If the caller is not `alone` there, there are no more than the
  // minimum size.
  std::optional<int> assign(const std::string& affinity, bool alone = true);
  void unassign(int interpreter);

  // Who has leased it, until it is released.
  void introduce(Interpreter& interpreter, std::weak_ptr<Leaseholder> holder);

  // Waiting and later callers get PoolClosedError; leases that are out stay good.
  void close();
  // The same for the process's end, when an error would help no caller: those that wait go on waiting.
  void close_for_good();
  bool is_closed() const;

  // Up to so many of its interpreters, for another pool, which has them alone from then on. They are a closed
  // pool's, of this origin, and nothing has run in them since their start. What was leased is no longer as it
  // was then, and stays.
  std::vector<Interpreter*> give_up(const Origin& origin, size_t most);

  // The sizes from now on. What is missing of the minimum is started in the background, what is
  // above it is parked. Callers are served by those that there are. Throws ArgumentError.
  void resize(int64_t min_size, int64_t max_size);

  // Leases the first `count` of those that are free or leased only, from now on, except those asked for by
  // number.
  void limit(int64_t count);

  // Leases at most so many at once for `affinity`, those asked for by number not counted,
  // from now until it is forgotten. ArgumentError for less than one.
  void set_share(const std::string& affinity, int64_t most);

  // Leases for `affinity` only interpreters of its own, from now on until it is forgotten.
  void isolate(const std::string& affinity);
  bool is_isolated(const std::string& affinity) const;

  ModuleSources& module_sources() { return module_sources_; }

  // Forgets `affinity`, whose model is gone: its share, its counters, its own interpreters, and the weights
  // that interpreters share for it. No interpreter is preferred for it any more. With `only`, its model is
  // gone in that one alone: it may come back there, and finds the rest.
  void forget(const std::string& affinity, std::optional<int> only = std::nullopt);

  // Calls `module.function(argument)` in every interpreter that is not retired, on its own
  // thread and beside its lease. Waits at most `patience` seconds for all
  // to be done; what it raises goes to stderr.
  void tell_all(const std::string& module, const std::string& function, const Value& argument,
                double patience = 0);

  // `visit`, between enter() and leave(), in those that were ever leased: likewise, waiting for none.
  void visit_leased(const std::function<void(Interpreter&)>& visit);

  // Parked: idle above the minimum size and kept warm, without models; leased again when
  // the pool next grows. Retired: lost. Given up: another pool's.
  enum class State : uint8_t { kFree, kLeased, kParked, kRetired, kGivenUp };
  struct Status {
    Interpreter* interpreter;
    State state;
    uint64_t leases;  // since the start
    std::vector<std::string> affinities;
    std::vector<double> idle;  // for each of them: seconds since it was last served here; 0: now
    std::string model;         // for which it is or was leased last; may be empty
    std::string owner;         // for which alone it is leased; empty: for all that share
    int thread;                // that leased it last, by the kernel's number
    double seconds;            // since it was leased last
    std::weak_ptr<Leaseholder> holder;
  };
  std::vector<Status> status() const;
  // By model, as far as it was leased for one, or leases have no affinity (""); of those that
  // were not forgotten.
  struct ModelStatus {
    LeaseCounters counters;
    size_t running = 0;
    size_t waiting = 0;
    std::optional<size_t> share;
    double longest = 0;  // seconds that the first of those who wait has waited
  };
  std::map<std::string, ModelStatus> models() const;
  uint64_t failed_starts() const;      // of interpreters, after the first ones
  std::vector<int> instances() const;  // the interpreters that may be leased, by number
  bool has(int interpreter) const;     // and has not given it up
  size_t size() const;                 // free and leased, of those that have no owner
  size_t reserve() const;              // of these, above what any model may lease
  size_t waiting() const;
  size_t min_size() const { return min_size_; }
  size_t max_size() const { return max_size_; }
  double grace() const { return options_.grace; }
  bool is_growing() const;      // is one being started?
  bool is_idle() const;         // neither that, nor is one leased
  std::string failure() const;  // why the last start failed; "" once one has succeeded

 private:
  struct Slot {
    explicit Slot(Interpreter* one) : interpreter(one) {}

    Interpreter* interpreter;
    State state = State::kFree;
    uint64_t leases = 0;
    std::map<std::string, Clock::time_point> affinities;  // and when each was last served
    FairQueue::Flow* flow = nullptr;                      // while leased
    std::string model;
    std::string owner = {};      // empty: all that share
    bool was_forgotten = false;  // its owner, while it was leased
    int thread = 0;
    Clock::time_point leased_at;
    Clock::time_point turn_at{};       // since then it has served `model` only
    bool is_first = false;             // a lease by a flow that it has not served: its model is loaded
    Clock::time_point next_load_at{};  // see is_load_deferred()
    std::weak_ptr<Leaseholder> holder;
    size_t residents = 0;  // callers that have it assigned
    // Parked then, and still freeing what it had: not to be leased yet.
    std::optional<Clock::time_point> parking = {};
  };
  using Flow = FairQueue::Flow;
  using Waiter = FairQueue::Waiter;
  // A listener, and what it waits for or is to hear of.
  struct Listening {
    Listening(Flow& flow, int thread, Clock::time_point now, std::shared_ptr<LeaseListener> one)
        : listener(std::move(one)), waiter{flow, std::nullopt, thread, now} {
      waiter.listener = listener.get();
    }

    const std::shared_ptr<LeaseListener> listener;
    Waiter waiter;
    Interpreter* interpreter = nullptr;
    bool is_overdue = false;  // it has waited for kLongWait
  };
  // Has `mutex_` for a scope. Listeners hear of what was decided for them when it is no longer held.
  class Locked {
   public:
    explicit Locked(Pool& pool) : pool_(pool), lock_(pool.mutex_) {}
    ~Locked() { pool_.tell_listeners(lock_); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    Pool& pool_;
    std::unique_lock<std::mutex> lock_;
  };

  Interpreter& lease(const std::string& affinity, std::optional<double> timeout, std::optional<int> only,
                     bool runs_here);
  Interpreter& begun(Interpreter& interpreter, const std::string& affinity);
  // With `mutex_` held, but not while they hear of it.
  void tell_listeners(std::unique_lock<std::mutex>& lock);

  // All below with `mutex_` held.
  void refuse_if_hopeless(const Flow& flow, std::optional<int> only) const;
  static bool is_gone(const Slot& slot) {
    return slot.state == State::kRetired || slot.state == State::kGivenUp;
  }
  static bool is_active(const Slot& slot) {
    return slot.state == State::kFree || slot.state == State::kLeased;
  }
  bool may_take(const Slot& slot, const Flow& flow, std::optional<int> only) const;
  // May this flow have one more, as far as its share and the reserve go?
  bool may_have_more(const Flow& flow) const;
  // Of those that have served the flow, first one that has served no other since: no models are exchanged
  // there. Then one that the `preferred` thread leased last. Then the one that was leased longest ago, so
  // that the models of others stay in place.
  Slot* free_slot(const Flow& flow, std::optional<int> only, std::optional<int> preferred = std::nullopt);
  // Whose turn it is, and where. Without a waiter, none can be served.
  struct Turn {
    Waiter* waiter = nullptr;
    Slot* slot = nullptr;
    bool is_any_deferred = false;  // could have been served, but for is_load_deferred()
  };
  // First a flow that an interpreter has begun to serve less than kTurn ago: exchanging models costs as much
  // as a short call. What it had beyond its fair part then, its tag makes up for.
  Turn next_turn(Clock::time_point now, bool loads_all);
  Turn turn_that_goes_on(Clock::time_point now);
  // Should this interpreter first serve those whose models it has? It has just loaded one, and another one
  // has this flow's. So a new interpreter helps from its first load on, and not only when it has loaded all.
  bool is_load_deferred(const Slot& slot, const Flow& flow, Clock::time_point now) const;
  Slot* slot_of(const Interpreter& interpreter);
  // From now on only `owner` leases it, if its owner was not forgotten.
  void give_to(Slot& slot, const std::string& owner);
  // One that was not to be leased may be now.
  void enlist(Slot& slot, const std::string& owner);
  bool has_lost_owner(const Slot& slot) const;
  void lose(Slot& slot);  // when it is not leased
  Flow& isolated(const std::string& affinity);
  // All that it has are leased, or have residents: it should have one more, and `most` at most.
  void want_more(Flow& flow, size_t most);
  void take(Slot& slot, Flow& flow, int thread, double waited = 0);
  void end_lease(Slot& slot, Requests answered);
  Slot* free_slot_for(const Waiter& waiter);
  std::string why_none(const Flow& flow, std::optional<int> only, double timeout) const;
  // Gives free interpreters to those who wait and may have them, until no such caller is left.
  void dispatch();
  void wake_all();
  // The lease of one that waits has begun, or it waits in vain.
  void grant(Waiter& waiter, Slot* slot);
  // Whether a listener may wait.
  bool may_listen(const Flow& flow) const;
  // When the first listener has waited for so long that it may have what is kept for others; max() if none
  // is still to. And: gives them that.
  Clock::time_point overdue_at() const;
  void dispatch_overdue();
  size_t surplus() const { return active_ > capacity_ ? active_ - capacity_ : 0; }
  bool may_start() const { return options_.start != nullptr && Clock::now() >= retry_at_; }
  bool has_parked() const;
  // What is parked needs no start, and can be had also after a start that failed.
  bool may_add() const { return may_start() || has_parked(); }
  // Is any of its minimum size on its way?
  bool is_filling() const { return active_ < min_size_ && (growing_ > 0 || may_add()) && !closed_; }
  // The flow whose own interpreters are too few; nullptr if no flow's are.
  const Flow* lacking() const;
  bool is_short() const { return active_ < min_size_ || lacking() != nullptr; }
  bool should_fill() const { return is_short() && may_add(); }
  bool may_grow() const { return active_ < std::min(max_size_.load(), limit_) && may_add(); }

  // autoscaler.cc
  enum class Growth : uint8_t { kNone, kCapacity, kReserve };
  bool has_waiters() const;
  // When the pool should grow for a model that is behind and waits; max() if there is none.
  Clock::time_point reserve_due() const;
  // What the capacity may grow to. If there are other models, the last one above the
  // minimum size is the reserve's.
  size_t most_capacity() const;
  size_t known_models() const;  // that have leased, or may, under a name
  bool may_raise_capacity() const { return capacity_ < most_capacity() && (surplus() > 0 || may_grow()); }
  bool may_raise_reserve() const { return may_grow() || (surplus() == 0 && capacity_ > min_size_); }
  void wake_autoscaler();
  void autoscale();
  Growth watch(std::unique_lock<std::mutex>& lock);
  void rest(std::unique_lock<std::mutex>& lock, Clock::duration pause);
  void grow(std::unique_lock<std::mutex>& lock, Growth growth);
  bool add_one(std::unique_lock<std::mutex>& lock, const std::string& owner = {});
  void fill(std::unique_lock<std::mutex>& lock);
  void end_parking(const Interpreter& interpreter);
  void park_surplus(std::unique_lock<std::mutex>& lock);
  // Without `mutex_`: they free their models, on their own threads. `freed` is called there, for each, under
  // its GIL.
  static void free_what_can_be_made_again(const std::vector<Interpreter*>& interpreters,
                                          std::function<void(Interpreter&)> freed = {});

  const PoolOptions options_;
  ModuleSources module_sources_;  // has a lock of its own
  std::atomic<size_t> min_size_;  // written with `mutex_` held
  std::atomic<size_t> max_size_;  // likewise
  mutable std::mutex mutex_;
  std::deque<Slot> slots_;                         // only ever grows: slots stay where they are
  std::map<std::string, LeaseCounters> counters_;  // by the name under which an interpreter is leased
  uint64_t failed_starts_ = 0;
  FairQueue queue_;
  std::list<Listening> listening_;  // those that wait
  std::list<Listening> to_tell_;
  size_t limit_ = SIZE_MAX;
  size_t active_;      // slots free or leased, here and in what follows of those without an owner
  size_t capacity_;    // how many may be leased to any caller; those above are the reserve
  size_t leased_ = 0;  // slots leased
  size_t beyond_ = 0;  // the most that were leased above the capacity, since the last review
  size_t wanted_ = 0;  // the most that were leased or waited for, since the last review
  size_t own_ = 0;     // slots free or leased that have an owner
  size_t own_leased_ = 0;
  std::atomic<size_t> owners_ = 0;  // written with `mutex_` held
  std::string failure_;             // why the last start failed, until one succeeds
  Clock::time_point retry_at_;
  Clock::duration retry_after_{};  // the last start that failed
  Clock::time_point review_at_;    // when what is not needed is parked
  size_t growing_ = 0;             // interpreters that are being started
  bool closed_ = false;
  bool ending_ = false;      // closed for good: those who wait get no error
  bool ran_in_all_ = false;  // something runs or has run in all of them
  bool autoscaler_runs_ = false;
  std::condition_variable autoscaler_;
  std::condition_variable started_;  // an interpreter has started, or has not, or is parked
};

}  // namespace interpool
