// A lease of one interpreter, and handles to the objects inside it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "export.h"
#include "value.h"

namespace interpool {

class MovableObject;
class Session;  // NOLINT(cppcoreguidelines-virtual-class-destructor): it is final

// A handle to an object of a session's interpreter. Lives no longer than its session:
// every use afterwards throws SessionClosedError. May be dropped on any thread.
//
// What is called here runs in the session's interpreter, on the calling thread, which
// must hold no GIL. Throws RemoteError for a Python exception, ConversionError for a
// value that cannot cross, WrongInterpreterError for an argument of another interpreter.
class INTERPOOL_PUBLIC PyObj {
 public:
  PyObj(std::shared_ptr<Session> session, std::shared_ptr<void> object);
  ~PyObj() = default;
  PyObj(PyObj&& other) noexcept = default;
  PyObj& operator=(PyObj&&) = delete;
  PyObj(const PyObj&) = delete;
  PyObj& operator=(const PyObj&) = delete;

  PyObj operator()(const std::vector<Value>& args = {}) const { return call(args); }
  PyObj call(const std::vector<Value>& args = {}) const { return call_kwargs(args, {}); }
  PyObj call_kwargs(const Keywords& keywords) const { return call_kwargs({}, keywords); }
  PyObj call_kwargs(const std::vector<Value>& args, const Keywords& keywords) const;
  PyObj attr(const std::string& name) const;
  bool has_attr(const std::string& name) const;
  // object[key]
  PyObj item(const Value& key) const;
  Value to_value() const;

  int interpreter_id() const;
  // As an argument of another call in the same interpreter. It stays good when this handle goes.
  ObjectRef reference() const;
  operator Value() const { return reference(); }

  const std::shared_ptr<Session>& session() const { return session_; }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<void> object_;
};

// Ends when it is destroyed. Any thread may use it; calls take turns.
class INTERPOOL_PUBLIC InterpreterSession {
 public:
  explicit InterpreterSession(std::shared_ptr<Session> session);
  ~InterpreterSession();
  InterpreterSession(InterpreterSession&&) noexcept = default;
  InterpreterSession& operator=(InterpreterSession&&) = delete;
  InterpreterSession(const InterpreterSession&) = delete;
  InterpreterSession& operator=(const InterpreterSession&) = delete;

  // `name` of `module`, which is imported if need be.
  PyObj global(const std::string& module, const std::string& name);
  // The object that the session was acquired for: a movable object's copy in this
  // interpreter, a package's importer. SessionError when it was acquired for none.
  PyObj self();
  PyObj from_value(const Value& value);
  // The movable object's copy in this interpreter, made now if it is the first need.
  PyObj from_movable(const MovableObject& movable);
  bool is_owner(const PyObj& object) const;
  // Pickles the object as it is now, for use in any interpreter; tensors keep sharing
  // their memory with it.
  MovableObject create_movable(const PyObj& object);

  int interpreter_id() const;
  bool is_open() const;
  // Gives the interpreter back; idempotent.
  void close();

 private:
  std::shared_ptr<Session> session_;
};

}  // namespace interpool
