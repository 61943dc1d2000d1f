// CPython's API and small owners for it. All of it needs this interpreter's GIL.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cassert>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace interpool {

// A strong reference, or null. Debug builds abort if the GIL is not held when one is taken or given back.
class Ref {
 public:
  Ref() = default;
  ~Ref() {
    if (object_ != nullptr) {
      assert(PyGILState_Check() != 0);
      Py_DECREF(object_);
    }
  }
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
  friend Ref steal(PyObject* owned);
  explicit Ref(PyObject* owned) : object_(owned) {}

  PyObject* object_ = nullptr;
};

// Takes over a reference of the caller's.
inline Ref steal(PyObject* owned) {
  return Ref(owned);
}

// Another reference to what the caller has none of, or keeps.
inline Ref borrow(PyObject* object) {
  assert(object == nullptr || PyGILState_Check() != 0);
  return steal(Py_XNewRef(object));
}

// With this interpreter's GIL for a scope, on any thread that holds no other one's.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Without this interpreter's GIL for a scope. The thread held it.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Runs `work` without the GIL. If it throws, the GIL is held again.
template <typename Work>
void without_gil(const Work& work) {
  const WithoutGil released;
  work();
}

// Without the garbage collector for a scope: it frees nothing and calls no finaliser, which might release
// the GIL.
class WithoutCollector {
 public:
  WithoutCollector() : enabled_(PyGC_Disable() != 0) {}
  ~WithoutCollector() {
    if (enabled_) {
      PyGC_Enable();
    }
  }
  WithoutCollector(const WithoutCollector&) = delete;
  WithoutCollector& operator=(const WithoutCollector&) = delete;

 private:
  const bool enabled_;
};

// Throws the pending Python exception as RemoteError; clears it.
[[noreturn]] void throw_pending();

// Takes ownership of a new reference; a null one is a pending exception.
inline Ref checked(PyObject* owned) {
  if (owned == nullptr) {
    throw_pending();
  }
  return steal(owned);
}

inline void check(int status) {
  if (status < 0) {
    throw_pending();
  }
}

// The same for functions that Python calls. The Python exception stays pending, and what is thrown ends in
// the function itself, or in its `guarded`.
struct PendingException : std::exception {};

inline Ref made(PyObject* owned) {
  if (owned == nullptr) {
    throw PendingException();
  }
  return steal(owned);
}

inline void done(int status) {
  if (status < 0) {
    throw PendingException();
  }
}

// The bytes of an object that has a buffer, as long as this is there; for functions that Python calls.
class BufferView {
 public:
  explicit BufferView(PyObject* of) { done(PyObject_GetBuffer(of, &buffer_, PyBUF_SIMPLE)); }
  ~BufferView() { PyBuffer_Release(&buffer_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  std::string_view text() const {
    return {static_cast<const char*>(buffer_.buf), static_cast<size_t>(buffer_.len)};
  }

 private:
  Py_buffer buffer_{};
};

// The qualified name of a function or class, of other objects their class's. Never
// throws.
std::string label_of(PyObject* object);

// UTF-8, with lone surrogates kept (PEP 383's "surrogatepass").
std::string to_utf8(PyObject* text);
Ref from_utf8(const std::string& text);

}  // namespace interpool
