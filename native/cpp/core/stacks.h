// What every interpreter of a pool is doing, from outside.
#pragma once

#include <string>
#include <vector>

#include "pool.h"

namespace interpool {

struct ThreadStack {
  int thread = 0;                   // by the kernel's number
  std::string name;                 // in that interpreter's Python; may be empty
  std::vector<std::string> frames;  // "function (file:line)", innermost first
};

struct InterpreterStacks {
  Pool::Status status;
  int inside = 0;         // the thread that has entered it, or 0
  bool answered = false;  // false: its GIL could not be taken
  std::vector<ThreadStack> threads;
};

// Also of those that are leased and busy; a retired one may no longer be asked. Any
// thread that holds no GIL; takes at most `patience` seconds.
INTERPOOL_PUBLIC std::vector<InterpreterStacks> stacks_of(const Pool& pool, double patience);

// A lease that has not been given back.
struct OpenLease {
  Pool::Status status;
  bool answered = false;            // false: its GIL could not be taken
  bool session = false;             // a session, or a served connection
  std::vector<std::string> labels;  // of the objects that the session holds
};

// All of them. Any thread that holds no GIL; takes at most `patience` seconds.
INTERPOOL_PUBLIC std::vector<OpenLease> open_leases(const Pool& pool, double patience);

}  // namespace interpool
