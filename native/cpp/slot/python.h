// CPython's API and small owners for it. All of it needs this interpreter's GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <string>
#include <utility>

namespace interpool {

// A strong reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  ~Ref() { Py_XDECREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Without this interpreter's GIL for a scope. The thread held it.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() { PyEval_RestoreThread(state_); }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

// Throws the pending Python exception as RemoteError; clears it.
[[noreturn]] void throw_pending();

// Takes ownership of a new reference; a null one is a pending exception.
inline Ref checked(PyObject* owned) {
  if (owned == nullptr) {
    throw_pending();
  }
  return Ref(owned);
}

inline void check(int status) {
  if (status < 0) {
    throw_pending();
  }
}

// The same for functions that Python calls: the Python exception stays pending, and what is thrown ends
// in the function itself, or where that is `guarded`.
struct PendingException : std::exception {};

inline Ref made(PyObject* owned) {
  if (owned == nullptr) {
    throw PendingException();
  }
  return Ref(owned);
}

inline void done(int status) {
  if (status < 0) {
    throw PendingException();
  }
}

// The qualified name of a function or class, of other objects their class's. Never
// throws.
std::string label_of(PyObject* object);

// UTF-8, with lone surrogates kept (PEP 383's "surrogatepass").
std::string to_utf8(PyObject* text);
Ref from_utf8(const std::string& text);

}  // namespace interpool
