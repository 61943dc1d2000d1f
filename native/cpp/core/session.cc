#include "session.h"

#include <algorithm>

namespace interpool {
namespace {

[[noreturn]] void refuse_closed() {
  throw SessionClosedError(
      "the session of this object has ended, and its interpreter may serve somebody else now; take "
      "values with to_value() before the session closes.");
}

}  // namespace

std::shared_ptr<Session> Session::acquire(std::shared_ptr<Pool> pool, const std::string& affinity,
                                          std::optional<double> timeout) {
  Interpreter& interpreter = pool->acquire(affinity, timeout);
  return std::shared_ptr<Session>(new Session(std::move(pool), interpreter));
}

Session::~Session() {
  close();
}

template <typename Work>
auto Session::inside(const Work& work) {
  const std::lock_guard using_it(use_);
  const Entered entered(interpreter_);
  if (!open_) {
    refuse_closed();
  }
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

void Session::close() {
  const std::lock_guard using_it(use_);
  {
    const Entered entered(interpreter_);
    if (!open_) {
      return;
    }
    open_ = false;
    for (void* object : objects_) {
      interpreter_.release(object);
    }
    objects_.clear();
  }
  pool_->release(interpreter_);
}

PyObj::~PyObj() {
  if (session_ && object_ != nullptr) {
    session_->drop(object_);
  }
}

PyObj PyObj::call(const std::vector<Value>& args, const Keywords& keywords) const {
  return session_->inside(
      [&] { return session_->keep(session_->interpreter_.call(object_, args, keywords)); });
}

PyObj PyObj::attribute(const std::string& name) const {
  return session_->inside([&] { return session_->keep(session_->interpreter_.attribute(object_, name)); });
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

}  // namespace interpool
