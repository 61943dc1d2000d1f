// The host's GIL, released and taken back in a way that survives the host's end.
#pragma once

#include <pybind11/pybind11.h>

namespace interpool {

// CPython ends a thread that asks for the GIL of a Python being finalised, by
// unwinding its stack, which C++ destructors do not survive. Such a thread waits
// here for ever instead. Any thread may call; `close` with the GIL held, from
// atexit, before the finalisation.
class HostGil {
 public:
  // Every other thread that wants the GIL back from now on waits for ever.
  static void close();

  // A thread that has taken the GIL back says so, and one that has released it. In between it mostly
  // converts values, which takes microseconds. Another thread that wants the GIL spins for as long before it
  // sleeps, as a sleep takes longer.
  static void taken() noexcept;
  static void released() noexcept;
  static void await_release() noexcept;

  // Open while a thread passes through it to the GIL.
  class Gate {
   public:
    Gate();
    ~Gate();
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
  };
};

// Without the host's GIL for a scope. The thread held it.
class WithoutHostGil {
 public:
  WithoutHostGil() : state_(PyEval_SaveThread()) { HostGil::released(); }
  ~WithoutHostGil() {
    const HostGil::Gate gate;
    HostGil::await_release();
    PyEval_RestoreThread(state_);
    HostGil::taken();
  }
  WithoutHostGil(const WithoutHostGil&) = delete;
  WithoutHostGil& operator=(const WithoutHostGil&) = delete;

 private:
  PyThreadState* const state_;
};

// With the host's GIL for a scope, on any thread that does not hold it.
class WithHostGil {
 public:
  WithHostGil() {
    const HostGil::Gate gate;
    state_ = PyGILState_Ensure();
  }
  ~WithHostGil() { PyGILState_Release(state_); }
  WithHostGil(const WithHostGil&) = delete;
  WithHostGil& operator=(const WithHostGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace interpool
