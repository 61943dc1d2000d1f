// The interpreter that the calling thread has entered, for the interposer's own files: read at each tensor's
// birth and death, and by most operators.
#pragma once

#include "interpreters.h"

namespace interpool {

// The initial-exec model spares a call. One int is well within what glibc keeps for libraries loaded after
// the start.
extern constinit thread_local InterpreterId entered
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// As current_interpreter().
inline InterpreterId interpreter_here() noexcept {
  const InterpreterId id = entered;
  return id != kNone ? id : current_interpreter();
}

}  // namespace interpool
