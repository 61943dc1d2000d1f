#include "session.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <optional>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include <interpool/package.h>

#include "../seam/object_ref.h"
#include "../seam/reported.h"
#include "movable.h"

namespace interpool {
namespace {

// What a call is of, for messages: the first of its arguments say it. Entered.
template <typename... Args>
std::string label_of(Interpreter& interpreter, const std::shared_ptr<void>& object, const Args&...) {
  return interpreter.label(object.get());
}
template <typename... Args>
std::string label_of(Interpreter&, const std::string& module, const std::string& name, const Args&...) {
  return module + "." + name;
}
std::string label_of(Interpreter&, const Value&) {
  return "from_value";
}
template <typename... Args>
std::string label_of(Interpreter&, const std::shared_ptr<Movable>& movable, const Args&...) {
  return movable->affinity();
}
std::string label_of(Interpreter&, const ObjectRef&) {
  return "a session's self";
}
std::string label_of(Interpreter&) {
  return "a session's self";
}

}  // namespace

std::shared_ptr<Session> Session::acquire(std::shared_ptr<Pool> pool, const std::string& affinity,
                                          std::optional<double> timeout, std::optional<double> call_limit,
                                          std::optional<int> only) {
  if (call_limit.has_value()) {
    require_positive("a call limit", *call_limit);
  }
  Interpreter& interpreter = pool->acquire(affinity, timeout, only, !call_limit.has_value());
  std::shared_ptr<Session> session(new Session(std::move(pool), interpreter));
  session->pool_->introduce(interpreter, session);
  if (call_limit.has_value()) {
    session->deadline_ =
        Deadline::start(interpreter, affinity, {*call_limit, session->pool_->grace()},
                        [pool = session->pool_, &interpreter, weak = session->weak_from_this()] {
                          if (const auto alive = weak.lock()) {
                            alive->open_ = false;
                          }
                          pool->retire(interpreter);
                        });
  }
  return session;
}

std::shared_ptr<Session> Session::adopt(std::shared_ptr<Pool> pool, Interpreter& interpreter) {
  std::shared_ptr<Session> session;
  try {
    session.reset(new Session(pool, interpreter));
  } catch (...) {
    pool->release(interpreter);
    throw;
  }
  pool->introduce(interpreter, session);
  return session;
}

std::shared_ptr<Session> Session::acquire_for(const std::shared_ptr<Movable>& movable,
                                              std::optional<double> timeout,
                                              std::optional<double> call_limit) {
  auto session = acquire(movable->pool(), movable->affinity(), timeout, call_limit);
  session->set_self(session->from_movable(movable));
  return session;
}

Session::~Session() {
  try {
    if (deadline_ == nullptr) {
      give_back();
    } else if (open_.exchange(false)) {
      // The last handle may go on a thread that holds the host's GIL. Objects that go may need that GIL on
      // the deadline's thread, so the caller does not wait for them here.
      std::thread([deadline = deadline_, pool = pool_, &interpreter = interpreter_, objects = objects_] {
        reported([&] { end_within_limit(*deadline, *pool, interpreter, [objects] { return objects; }); });
      }).detach();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "interpool: interpreter %d cannot be given back: %s\n", interpreter_.id(),
                 error.what());
  }
}

void Session::refuse() const {
  if (deadline_ != nullptr) {
    deadline_->require();
  }
  refuse_ended_session();
}

// On the thread of a call limit, `caller` are the modes of the thread that waits for it.
template <typename Work>
auto Session::visit(const Work& work, const CallerModes* caller) {
  const std::lock_guard using_it(use_);
  if (!open_) {
    refuse();
  }
  const Entered entered(interpreter_);
  // Again: a call that was given up may get the GIL after all, when its objects are gone.
  if (!open_) {
    refuse();
  }
  std::list<void*> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(dropped_);
  }
  for (void* object : dropped) {
    objects_.erase(objects_.find(object));
    interpreter_.release(object);
  }
  caller_ = caller != nullptr ? *caller : interpreter_.modes();
  return work();
}

template <typename Work, typename... Args>
auto Session::inside(const Work& work, const Args&... args) {
  static_assert(std::is_empty_v<Work>, "what the work captures may be gone when it runs: pass it");
  if (deadline_ == nullptr) {
    return visit([&] { return work(*this, args...); });
  }
  if (!open_) {
    refuse();
  }
  using Result = decltype(work(*this, args...));
  auto result = std::make_shared<std::optional<Result>>();
  deadline_->run([self = shared_from_this(), result, work, caller = interpreter_.modes(),
                  kept = std::tuple<Args...>(args...)](WatchedCall& call) {
    const auto within_limit = [&] {
      const Interruptible here(self->interpreter_, call.number());
      return std::apply(
          [&](const auto&... each) {
            call.set_what(label_of(self->interpreter_, each...));
            return work(*self, each...);
          },
          kept);
    };
    result->emplace(self->visit(within_limit, &caller));
  });
  return std::move(**result);
}

PyObj Session::keep(void* object) {
  std::list<void*> place;
  try {
    place.push_back(object);
    objects_.insert(object);
  } catch (const std::bad_alloc&) {
    interpreter_.release(object);
    throw;
  }
  auto session = shared_from_this();
  // If this finds no memory, it drops the object.
  std::shared_ptr<void> held(object,
                             [session, place = std::move(place)](void*) mutable { session->drop(place); });
  return {std::move(session), std::move(held)};
}

void Session::drop(std::list<void*>& object) noexcept {
  const std::lock_guard lock(mutex_);
  dropped_.splice(dropped_.end(), object);
}

PyObj Session::global(const std::string& module, const std::string& name) {
  return inside([](Session& self, const std::string& from,
                   const std::string& what) { return self.keep(self.interpreter_.global(from, what)); },
                module, name);
}

PyObj Session::from_value(const Value& value) {
  return inside(
      [](Session& self, const Value& given) { return self.keep(self.interpreter_.from_value(given)); },
      value);
}

PyObj Session::run(const guest::Name& function, const std::vector<Value>& args) {
  return inside(
      [](Session& self, const std::string& module, const std::string& name, const std::vector<Value>& given) {
        Interpreter& here = self.interpreter_;
        const Held callable(here, here.global(module, name));
        return self.keep(here.call(callable.get(), given, {}, nullptr));
      },
      std::string(function.module), std::string(function.name), args);
}

PyObj Session::self() {
  return inside([](Session& self) {
    if (self.self_ == nullptr) {
      throw SessionError(
          "the session was acquired for no object; sessions of a MovableObject or a Package have a self.");
    }
    return self.keep(self.interpreter_.retain(self.self_));
  });
}

PyObj Session::from_movable(const std::shared_ptr<Movable>& movable) {
  return inside(
      [](Session& self, const std::shared_ptr<Movable>& wanted) {
        // Borrowed, and a reference of our own taken, under one hold of the GIL.
        return self.keep(self.interpreter_.retain(wanted->in(self.interpreter_)));
      },
      movable);
}

Value Session::call_movable(const std::shared_ptr<Movable>& movable, const std::vector<Value>& args,
                            const Keywords& keywords) {
  return inside(
      [](Session& self, const std::shared_ptr<Movable>& wanted, const std::vector<Value>& positional,
         const Keywords& named) { return self.call_here(wanted, positional, named); },
      movable, args, keywords);
}

Value Session::call_movable(const std::shared_ptr<Movable>& movable, const std::vector<Value>& args,
                            const Keywords& keywords, const CallerModes& caller, const WatchedCall& call,
                            const std::function<bool()>& is_cancelled) {
  return visit(
      [&] {
        const Interruptible here(interpreter_, call.number());
        return is_cancelled() ? Value() : call_here(movable, args, keywords);
      },
      &caller);
}

// Entered.
Value Session::call_here(const std::shared_ptr<Movable>& movable, const std::vector<Value>& args,
                         const Keywords& keywords) {
  // References of our own: unload() may drop the movable's while the call runs.
  const Held object(interpreter_, interpreter_.retain(movable->in(interpreter_)));
  const Held result(interpreter_, interpreter_.call(object.get(), args, keywords, caller_));
  return interpreter_.to_value(result.get());
}

std::shared_ptr<Movable> Session::create_movable(const PyObj& object) {
  return Movable::from_dump(pool_, run(guest::kDump, {object}).to_value());
}

void Session::set_self(const PyObj& object) {
  inside(
      [](Session& self, const ObjectRef& given) {
        self.self_ = self.interpreter_.from_value(given);
        self.objects_.insert(self.self_);
        return true;
      },
      object.reference());
}

std::vector<std::string> Session::holds(Interpreter& interpreter) {
  // Never while an object is half given back. The list is changed with the GIL held, and an object is off it
  // before it is released.
  HeldObjects held = objects_;
  {
    const std::lock_guard lock(mutex_);
    for (void* object : dropped_) {
      // A session that is closing has an empty list while the last of its objects go.
      if (const auto found = held.find(object); found != held.end()) {
        held.erase(found);
      }
    }
  }
  std::vector<std::string> labels;
  for (void* object : held) {
    labels.push_back(interpreter.label(object));
  }
  std::sort(labels.begin(), labels.end());
  return labels;
}

void Session::close() {
  if (deadline_ != nullptr) {
    if (open_.exchange(false)) {
      end_within_limit(*deadline_, *pool_, interpreter_,
                       [self = shared_from_this()] { return std::exchange(self->objects_, {}); });
    }
    return;
  }
  const std::lock_guard using_it(use_);
  if (!open_) {
    return;
  }
  open_ = false;
  if (!objects_.empty()) {  // a visit costs about a microsecond
    const Entered entered(interpreter_);
    const HeldObjects objects = std::exchange(objects_, {});
    for (void* object : objects) {
      interpreter_.release(object);
    }
  }
  pool_->release(interpreter_);
}

// The last handle may go on a thread that holds the host's GIL. Such a thread does not wait here for the
// interpreter's, which another may hold for long. Objects that are left go on its main thread.
void Session::give_back() {
  if (!open_.exchange(false)) {
    return;
  }
  if (objects_.empty()) {
    pool_->release(interpreter_);
    return;
  }
  interpreter_.later([pool = pool_, &interpreter = interpreter_, objects = std::move(objects_)] {
    {
      const Entered entered(interpreter);
      for (void* object : objects) {
        interpreter.release(object);
      }
    }
    pool->release(interpreter);
  });
}

// Objects may run code when they go, which may not come back either. `objects` is called
// on the deadline's thread, where no other call of the session is under way.
template <typename Objects>
void Session::end_within_limit(Deadline& deadline, Pool& pool, Interpreter& interpreter, Objects objects) {
  try {
    deadline.run([objects, &interpreter](WatchedCall& call) {
      const Entered entered(interpreter);
      const Interruptible here(interpreter, call.number());
      call.set_what("the end of a session");
      for (void* object : objects()) {
        interpreter.release(object);
      }
    });
  } catch (const InterpreterRetiredError&) {
    return;
  } catch (const CallTimeoutError&) {
    if (deadline.given_up()) {
      throw;
    }
  }
  deadline.stop();
  pool.release(interpreter);
}

PyObj::PyObj(std::shared_ptr<Session> session, std::shared_ptr<void> object)
    : session_(std::move(session)), object_(std::move(object)) {}

PyObj PyObj::call_kwargs(const std::vector<Value>& args, const Keywords& keywords) const {
  return session_->inside(
      [](Session& self, const std::shared_ptr<void>& object, const std::vector<Value>& positional,
         const Keywords& named) {
        return self.keep(self.interpreter_.call(object.get(), positional, named, self.caller_));
      },
      object_, args, keywords);
}

PyObj PyObj::attr(const std::string& name) const {
  return session_->inside(
      [](Session& self, const std::shared_ptr<void>& object, const std::string& of) {
        return self.keep(self.interpreter_.attribute(object.get(), of, self.caller_));
      },
      object_, name);
}

bool PyObj::has_attr(const std::string& name) const {
  return session_->inside(
      [](Session& self, const std::shared_ptr<void>& object, const std::string& of) {
        return self.interpreter_.has_attribute(object.get(), of, self.caller_);
      },
      object_, name);
}

PyObj PyObj::item(const Value& key) const {
  return session_->inside(
      [](Session& self, const std::shared_ptr<void>& object, const Value& of) {
        return self.keep(self.interpreter_.item(object.get(), of, self.caller_));
      },
      object_, key);
}

int PyObj::interpreter_id() const {
  return session_->interpreter_id();
}

Value PyObj::to_value() const {
  return session_->inside(
      [](Session& self, const std::shared_ptr<void>& object) {
        return self.interpreter_.to_value(object.get());
      },
      object_);
}

ObjectRef PyObj::reference() const {
  if (!session_->is_open()) {
    session_->refuse();
  }
  return {session_->interpreter_id(), object_, {session_, &session_->open_}};
}

InterpreterSession::InterpreterSession(std::shared_ptr<Session> session) : session_(std::move(session)) {}

InterpreterSession::~InterpreterSession() {
  if (session_ == nullptr) {
    return;
  }
  try {
    session_->close();
  } catch (const std::exception& error) {  // what it held was not released in time
    std::fprintf(stderr, "interpool: %s\n", error.what());
  }
}

PyObj InterpreterSession::global(const std::string& module, const std::string& name) {
  return session_->global(module, name);
}

PyObj InterpreterSession::self() {
  return session_->self();
}

PyObj InterpreterSession::from_value(const Value& value) {
  return session_->from_value(value);
}

PyObj InterpreterSession::from_movable(const MovableObject& movable) {
  return session_->from_movable(movable.movable());
}

bool InterpreterSession::is_owner(const PyObj& object) const {
  return session_->is_owner(object);
}

MovableObject InterpreterSession::create_movable(const PyObj& object) {
  return MovableObject(session_->create_movable(object));
}

int InterpreterSession::interpreter_id() const {
  return session_->interpreter_id();
}

bool InterpreterSession::is_open() const {
  return session_->is_open();
}

void InterpreterSession::close() {
  session_->close();
}

}  // namespace interpool
