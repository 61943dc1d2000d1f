#include "session.h"

#include <algorithm>
#include <utility>

#include <interpool/package.h>

#include "movable.h"

namespace interpool {
namespace {

[[noreturn]] void refuse_closed() {
  throw SessionClosedError(
      "the session of this object has ended, and its interpreter may serve somebody else now; take "
      "values with to_value() before the session closes.");
}

}  // namespace

std::shared_ptr<Session> Session::acquire(std::shared_ptr<Pool> pool, const std::string& affinity,
                                          std::optional<double> timeout, std::optional<int> only) {
  Interpreter& interpreter = pool->acquire(affinity, timeout, only);
  return std::shared_ptr<Session>(new Session(std::move(pool), interpreter));
}

std::shared_ptr<Session> Session::acquire_for(const std::shared_ptr<Movable>& movable,
                                              std::optional<double> timeout) {
  auto session = acquire(movable->pool(), movable->affinity(), timeout);
  session->set_self(session->from_movable(movable));
  return session;
}

Session::~Session() {
  close();
}

template <typename Work>
auto Session::inside(const Work& work) {
  const std::lock_guard using_it(use_);
  if (!open_) {
    refuse_closed();
  }
  const Entered entered(interpreter_);
  std::vector<void*> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(dropped_);
  }
  for (void* object : dropped) {
    objects_.erase(std::find(objects_.begin(), objects_.end(), object));
    interpreter_.release(object);
  }
  return work();
}

PyObj Session::keep(void* object) {
  objects_.push_back(object);
  return PyObj(shared_from_this(), object);
}

void Session::drop(void* object) noexcept {
  const std::lock_guard lock(mutex_);
  dropped_.push_back(object);
}

PyObj Session::global(const std::string& module, const std::string& name) {
  return inside([&] { return keep(interpreter_.global(module, name)); });
}

PyObj Session::from_value(const Value& value) {
  return inside([&] { return keep(interpreter_.from_value(value)); });
}

PyObj Session::self() {
  return inside([&] {
    if (self_ == nullptr) {
      throw SessionError(
          "the session was acquired for no object; sessions of a MovableObject or a Package have a self.");
    }
    return keep(interpreter_.from_value(ObjectRef{interpreter_.id(), self_}));
  });
}

PyObj Session::from_movable(const std::shared_ptr<Movable>& movable) {
  return inside([&] {
    // Borrowed, and a reference of our own taken, under one hold of the GIL.
    return keep(interpreter_.from_value(ObjectRef{interpreter_.id(), movable->in(interpreter_)}));
  });
}

Value Session::call_movable(Movable& movable, const std::vector<Value>& args, const Keywords& keywords) {
  return inside([&] {
    // References of our own: unload() may drop the movable's while the call runs.
    const Held object(interpreter_,
                      interpreter_.from_value(ObjectRef{interpreter_.id(), movable.in(interpreter_)}));
    const Held result(interpreter_, interpreter_.call(object.get(), args, keywords));
    return interpreter_.to_value(result.get());
  });
}

std::shared_ptr<Movable> Session::create_movable(const PyObj& object) {
  const PyObj dump = global(Movable::kModule, "dump");
  return Movable::from_dump(pool_, dump.call({object}).to_value());
}

void Session::set_self(const PyObj& object) {
  inside([&] {
    self_ = interpreter_.from_value(object.reference());
    objects_.push_back(self_);
  });
}

void Session::close() {
  const std::lock_guard using_it(use_);
  if (!open_) {
    return;
  }
  open_ = false;
  if (!objects_.empty()) {  // a visit costs about a microsecond
    const Entered entered(interpreter_);
    for (void* object : objects_) {
      interpreter_.release(object);
    }
    objects_.clear();
  }
  pool_->release(interpreter_);
}

PyObj::PyObj(std::shared_ptr<Session> session, void* object)
    : session_(std::move(session)), object_(object) {}

PyObj::PyObj(PyObj&& other) noexcept
    : session_(std::move(other.session_)), object_(std::exchange(other.object_, nullptr)) {}

PyObj::~PyObj() {
  if (session_ && object_ != nullptr) {
    session_->drop(object_);
  }
}

PyObj PyObj::call_kwargs(const std::vector<Value>& args, const Keywords& keywords) const {
  return session_->inside(
      [&] { return session_->keep(session_->interpreter_.call(object_, args, keywords)); });
}

PyObj PyObj::attr(const std::string& name) const {
  return session_->inside([&] { return session_->keep(session_->interpreter_.attribute(object_, name)); });
}

bool PyObj::has_attr(const std::string& name) const {
  return session_->inside([&] { return session_->interpreter_.has_attribute(object_, name); });
}

PyObj PyObj::item(const Value& key) const {
  return session_->inside([&] { return session_->keep(session_->interpreter_.item(object_, key)); });
}

int PyObj::interpreter_id() const {
  return session_->interpreter_id();
}

Value PyObj::to_value() const {
  return session_->inside([&] { return session_->interpreter_.to_value(object_); });
}

ObjectRef PyObj::reference() const {
  if (!session_->is_open()) {
    refuse_closed();
  }
  return {session_->interpreter_id(), object_};
}

InterpreterSession::InterpreterSession(std::shared_ptr<Session> session) : session_(std::move(session)) {}

InterpreterSession::~InterpreterSession() {
  if (session_ != nullptr) {
    session_->close();
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
