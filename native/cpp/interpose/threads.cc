// Threads that private copies start, and what their Pythons keep for threads.
//
// A thread that a model starts works for the interpreter that it was started in, for good. So nobody
// needs to ask every interpreter whether the thread is one of its own, at each operator. Names of the
// C library's that private copies import are bound to those below, under the prefix.
#include <pthread.h>

#include <memory>

#include "interpreters.h"

namespace interpool {
namespace {

struct Start {
  InterpreterId interpreter;
  void* (*function)(void*);
  void* argument;
};

void* run(void* given) {
  const Start start = *std::unique_ptr<Start>(static_cast<Start*>(given));
  enter_interpreter(start.interpreter);
  return start.function(start.argument);
}

}  // namespace
}  // namespace interpool

using namespace interpool;

extern "C" {

INTERPOOL_API int ip_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                    void* (*function)(void*), void* argument) {
  const InterpreterId here = current_interpreter();
  if (here <= kHost) {
    return pthread_create(thread, attributes, function, argument);
  }
  auto start = std::make_unique<Start>(Start{here, function, argument});
  const int failure = pthread_create(thread, attributes, &run, start.get());
  if (failure == 0) {
    static_cast<void>(start.release());
  }
  return failure;
}

// CPython keeps a thread's state in such a key, and hardly anybody else uses them.
INTERPOOL_API int ip_pthread_setspecific(pthread_key_t key, const void* value) {
  if (value != nullptr) {
    may_have_states(true);
  }
  return pthread_setspecific(key, value);
}

}  // extern "C"
