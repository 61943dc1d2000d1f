// libtorch's state of the calling thread: grad mode, autocast, dispatch modes and their like.
#pragma once

#include <ATen/ThreadLocalState.h>

#include <memory>

#include "../seam/interpreter.h"

namespace torch::jit::tracer {
struct TracingState;
}

namespace interpool {

// All of it, of the thread that makes this.
class ThreadState {
 public:
  ThreadState();
  // For the calling thread. Python objects in it are copied and dropped: no other interpreter's
  // GIL than theirs may be held.
  void set() const;

 private:
  at::ThreadLocalState most_;
  bool autocast_cache_;  // which most_ leaves out
};

// Is it what a thread has that has done nothing yet? Only looks, which takes a tenth of
// the time that copying it takes (at::ThreadLocalState). Any thread, any GIL or none.
bool thread_state_is_fresh();

// Grad mode, inference mode and autocast of the calling thread; null if they are a new
// thread's. Nothing else: modes of dispatch, hooks and their like are Python objects of their
// interpreter.
CallerModes modes_of_thread();

// Gives them to the calling thread, whose state is fresh; null: leaves it so.
void set_modes(const CallerModes& modes);

// Is all but the modes what a new thread has? Then there is no Python object in the state, and three calls
// replace two copies of it. clear_modes() gives the thread a new thread's modes. restore_modes() gives it
// those that modes_of_thread() has found on this very thread.
bool is_fresh_but_for_modes();
void clear_modes();
void restore_modes(const Modes& modes);

// How many blocks of autocast the calling thread is in. torch empties its cache of cast weights, which is the
// process's, when a thread leaves its outermost block. It keeps that number in no other state.
int autocast_blocks();
// Leaves blocks that were entered since, or enters those that were left.
void restore_autocast_blocks(int before);

// What torch.jit.trace records on the calling thread; null if nothing is traced.
using Trace = std::shared_ptr<torch::jit::tracer::TracingState>;
// The thread traces nothing until it gets its trace back. A trace that was begun meanwhile ends then.
Trace take_trace();
void restore_trace(Trace trace);

// As long as this lives, the calling thread has that state; then its own again. The objects in
// the state are the calling interpreter's, whose GIL is held.
class FreshThreadState {
 public:
  FreshThreadState();
  ~FreshThreadState();
  FreshThreadState(const FreshThreadState&) = delete;
  FreshThreadState& operator=(const FreshThreadState&) = delete;

 private:
  const ThreadState own_;
};

}  // namespace interpool
