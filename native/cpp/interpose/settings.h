// torch's settings of the process, one set for each model in each interpreter.
//
// libtorch keeps one at::Context, one default dtype and one default generator for the process. It keeps its
// numbers of threads and its treatment of denormals on each thread. Here a model that changes one changes its
// own, as though it had a process to itself. The host, and threads of no interpreter, keep libtorch's.
//
// Lock: a cell's mutex (settings.cc), taken before the generator's; no GIL is waited
// for under either. Reads take no lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "interpreters.h"

namespace interpool {

// Rebinds libtorch's own uses of the settings to those below. Call once, before the
// first slot loads libtorch_python; harmless when repeated.
void install_settings();

// From now on the interpreter works for `model`, with the settings that it had last in there. A new one, and
// "", have those of a new process. Any thread, with or without a GIL. Throws std::bad_alloc; nothing has
// changed then.
//
// Settings that are no model's are kept until `now` is ten minutes later if a thread may read them.
INTERPOOL_API void use_settings(InterpreterId id, const std::string& model,
                                std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

// Forgets a model's settings in an interpreter. Any thread, with or without a GIL.
INTERPOOL_API void forget_settings(InterpreterId id, const std::string& model);

// How the calling thread's arithmetic rounds, what it does with denormals, and which exceptions it has met.
struct FloatModes {
  uint32_t sse = 0x1F80;  // MXCSR, and x87's control word; those of a new process
  uint16_t x87 = 0x037F;
};

// What a thread had before it entered an interpreter.
struct ThreadSettings {
  InterpreterId interpreter = kNone;  // that it has entered
  FloatModes floats;
  int threads = 0;
  int mkl_threads = 0;
  bool threads_set = false;
};

// The calling thread enters an interpreter, and leaves it: its floating-point
// environment and its number of threads become the interpreter's, then its own again. In
// between it counts as at work there (at_work.h).
INTERPOOL_API void enter_settings(InterpreterId id, ThreadSettings& outside);
INTERPOOL_API void leave_settings(const ThreadSettings& outside) noexcept;

// autograd's anomaly mode has one switch, which inlined code reads. It is on while any interpreter wants it:
// each call with true is followed by one with false. Any thread.
INTERPOOL_API void want_anomaly(bool wanted);

}  // namespace interpool
