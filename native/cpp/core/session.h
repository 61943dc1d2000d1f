// The lease behind InterpreterSession and PyObj.
#pragma once

#include <interpool/session.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "../seam/guest_modules.h"
#include "deadline.h"
#include "pool.h"

namespace interpool {

class Movable;

// Ends when close() is called or the last handle to it goes. Callers hold no GIL. `use_` is held while the
// interpreter works for the session: close() waits for a call that another thread has under way. It guards
// `open_`, `objects_`, `self_` and `caller_`. `mutex_` guards `dropped_` (handles may be dropped anywhere).
// Lock order: `use_`, then the interpreter's GIL, then `mutex_`.
//
// A session with a call limit works on a thread of its own, `deadline_`'s. A call that takes longer than that
// many seconds is interrupted and throws CallTimeoutError. One that does not come back even so costs the pool
// its interpreter. The session has ended then, and all that is its throws InterpreterRetiredError.
class INTERPOOL_PUBLIC Session final : public std::enable_shared_from_this<Session>, public Leaseholder {
 public:
  static std::shared_ptr<Session> acquire(std::shared_ptr<Pool> pool, const std::string& affinity,
                                          std::optional<double> timeout,
                                          std::optional<double> call_limit = std::nullopt,
                                          std::optional<int> only = std::nullopt);
  // One whose self() is the object.
  static std::shared_ptr<Session> acquire_for(const std::shared_ptr<Movable>& movable,
                                              std::optional<double> timeout,
                                              std::optional<double> call_limit = std::nullopt);
  // An interpreter that the caller has leased: the session gives it back.
  static std::shared_ptr<Session> adopt(std::shared_ptr<Pool> pool, Interpreter& interpreter);
  ~Session();

  PyObj global(const std::string& module, const std::string& name);
  PyObj self();
  PyObj from_value(const Value& value);
  // Calls interpool's own function there: with a new thread's modes, and not the caller's.
  PyObj run(const guest::Name& function, const std::vector<Value>& args);
  PyObj from_movable(const std::shared_ptr<Movable>& movable);
  // Its copy here, called; in one visit to the interpreter.
  Value call_movable(const std::shared_ptr<Movable>& movable, const std::vector<Value>& args,
                     const Keywords& keywords);
  // The same, in modes of another thread, by a call that can be interrupted; a session without a call limit.
  // If it `is_cancelled` before it begins, None.
  Value call_movable(const std::shared_ptr<Movable>& movable, const std::vector<Value>& args,
                     const Keywords& keywords, const CallerModes& caller, const WatchedCall& call,
                     const std::function<bool()>& is_cancelled);
  bool is_owner(const PyObj& object) const { return object.session().get() == this; }
  std::shared_ptr<Movable> create_movable(const PyObj& object);

  // What self() gives, for sessions that are acquired for an object.
  void set_self(const PyObj& object);
  // Gives the interpreter back; objects of the session are dead from here on.
  // Idempotent.
  void close();
  int interpreter_id() const { return interpreter_.id(); }
  Interpreter& interpreter() const { return interpreter_; }
  bool is_open() const { return open_; }
  std::vector<std::string> holds(Interpreter& interpreter) override;

 private:
  friend class PyObj;
  Session(std::shared_ptr<Pool> pool, Interpreter& interpreter)
      : pool_(std::move(pool)), interpreter_(interpreter) {}

  // Enters, checks that the session is open, frees what was dropped, and returns
  // work(*this, args...). `work` captures nothing: under a call limit it may outlive
  // the caller, and gets copies.
  template <typename Work, typename... Args>
  auto inside(const Work& work, const Args&... args);
  template <typename Work>
  auto visit(const Work& work, const CallerModes* caller = nullptr);
  Value call_here(const std::shared_ptr<Movable>& movable, const std::vector<Value>& args,
                  const Keywords& keywords);
  template <typename Objects>
  static void end_within_limit(Deadline& deadline, Pool& pool, Interpreter& interpreter, Objects objects);
  [[noreturn]] void refuse() const;
  PyObj keep(void* object);
  // Called for the last handle to an object, on any thread, with or without a GIL. The list of that object
  // alone was made with the handle, so that nothing is allocated here.
  void drop(std::list<void*>& object) noexcept;
  void give_back();

  const std::shared_ptr<Pool> pool_;
  Interpreter& interpreter_;
  std::shared_ptr<Deadline> deadline_;  // null without a call limit
  std::mutex use_;
  std::atomic<bool> open_{true};  // is_open() reads it without the lock
  using HeldObjects = std::unordered_multiset<void*>;
  HeldObjects objects_;   // a reference each
  void* self_ = nullptr;  // one of them
  CallerModes caller_;    // in which the model's own code runs, during a visit
  std::mutex mutex_;
  std::list<void*> dropped_;
};

}  // namespace interpool
