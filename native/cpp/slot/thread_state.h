// libtorch's state of the calling thread: grad mode, autocast, dispatch modes and their like.
#pragma once

#include <ATen/ThreadLocalState.h>

namespace interpool {

// Is it what a thread has that has done nothing yet? Only looks, which takes a tenth of
// the time that copying it takes (at::ThreadLocalState). Any thread, any GIL or none.
bool thread_state_is_fresh();

// As long as this lives, the calling thread has that state; then its own again. The objects in
// the state are the calling interpreter's, whose GIL is held.
class FreshThreadState {
 public:
  FreshThreadState();
  ~FreshThreadState();
  FreshThreadState(const FreshThreadState&) = delete;
  FreshThreadState& operator=(const FreshThreadState&) = delete;

 private:
  const at::ThreadLocalState own_;
};

}  // namespace interpool
