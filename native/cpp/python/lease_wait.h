// Waiting for an interpreter on a thread of the host's Python.
#pragma once

#include <optional>

#include <sys/syscall.h>
#include <unistd.h>

#include "../core/pool.h"
#include "host_gil.h"

namespace interpool {

// Without the host's GIL for a scope, in which a lease may be waited for: Ctrl-C ends the wait. Python
// handles signals on its main thread only, so others need not look.
class LeaseWait {
 public:
  LeaseWait() {
    thread_local const bool is_main = syscall(SYS_gettid) == getpid();  // a forked process may not lease
    if (is_main) {
      watch_.emplace([] {
        const WithHostGil gil;
        if (PyErr_CheckSignals() != 0) {
          throw pybind11::error_already_set();
        }
      });
    }
  }

 private:
  const WithoutHostGil free_;
  std::optional<WatchedWait> watch_;
};

}  // namespace interpool
