// What private copies register with pthread_atfork runs in forks of their own interpreter's only.
//
// A fork copies one thread. Another interpreter's handler would wait in the child for a GIL
// whose holder is not there.
#include <pthread.h>

#include <cerrno>
#include <mutex>
#include <new>
#include <vector>

#include "private_copies.h"

namespace interpool {
namespace {

using Function = void (*)();

struct Handlers {
  InterpreterId owner;
  Function prepare, parent, child;
};

struct Table {
  // Held across a fork, so that the child has it, too: nothing that this library locks is waited for
  // meanwhile.
  std::mutex mutex;
  std::vector<Handlers> all;
};

Table& table() {
  static auto* const handlers = new Table;
  return *handlers;
}

thread_local std::vector<Handlers>* forking = nullptr;  // those of the fork under way

void prepare() {
  const InterpreterId here = current_interpreter();
  auto* own = new std::vector<Handlers>;
  {
    const std::lock_guard lock(table().mutex);
    for (const Handlers& each : table().all) {
      if (each.owner == here) {
        own->push_back(each);
      }
    }
  }
  for (auto each = own->rbegin(); each != own->rend(); ++each) {
    if (each->prepare != nullptr) {
      each->prepare();
    }
  }
  forking = own;
  table().mutex.lock();
}

void forked(Function Handlers::* which) {
  if (forking == nullptr) {  // registered while this fork was under way
    return;
  }
  table().mutex.unlock();
  for (const Handlers& each : *forking) {
    if (each.*which != nullptr) {
      (each.*which)();
    }
  }
  delete forking;
  forking = nullptr;
}

}  // namespace
}  // namespace interpool

using namespace interpool;

// What pthread_atfork calls, which is linked into each library.
extern "C" INTERPOOL_API int ip___register_atfork(void (*before)(), void (*parent)(), void (*child)(),
                                                  void* library) {
  static const int failure =
      pthread_atfork(&prepare, [] { forked(&Handlers::parent); }, [] { forked(&Handlers::child); });
  if (failure != 0) {
    return failure;
  }
  const InterpreterId owner = owner_of_code(library != nullptr ? library : __builtin_return_address(0));
  const std::lock_guard lock(table().mutex);
  try {
    table().all.push_back({owner, before, parent, child});
  } catch (const std::bad_alloc&) {  // the caller is C code
    return ENOMEM;
  }
  return 0;
}
