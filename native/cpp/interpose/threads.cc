// Threads that private copies start, and what their Pythons keep for threads.
//
// A thread that a model starts works for the interpreter that it was started in, for good, and counts as at
// work there (at_work.h). So no code needs to ask every interpreter, at each operator, whether the thread is
// one of its own. Names of the C library's that private copies import are bound to those below, under the
// prefix.
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "../seam/apart_thread.h"
#include "at_work.h"
#include "interpreters.h"

// std::thread::_M_start_thread(std::unique_ptr<std::thread::_State>, void (*)())
#define INTERPOOL_START_THREAD \
  "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE"

namespace interpool {
namespace {

// Counts a thread until it has ended, however it does (pthread_exit). As thread_local, it is made first, and
// so destroyed after what the model's code keeps for the thread.
struct Counted {
  InterpreterId interpreter = kNone;
  ~Counted() {
    if (interpreter != kNone) {
      end_work(interpreter);
    }
  }
};
thread_local Counted counted;

// Whether the next thread that this one starts gets a working directory of its own.
thread_local bool starts_apart = false;

int create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) {
  if (starts_apart && ApartThread::start(thread, attributes, function, argument) == 0) {
    return 0;
  }
  return pthread_create(thread, attributes, function, argument);
}

struct Start {
  InterpreterId interpreter;
  void* (*function)(void*);
  void* argument;
};

void* run(void* given) {
  const Start start = *std::unique_ptr<Start>(static_cast<Start*>(given));
  counted.interpreter = start.interpreter;
  enter_interpreter(start.interpreter);
  return start.function(start.argument);
}

// What a std::thread of a private copy's does. Its library, which all have in common, calls the C library's
// pthread_create.
class Work final : public std::thread::_State {
 public:
  Work(InterpreterId interpreter, std::thread::_State_ptr work)
      : interpreter_(interpreter), work_(std::move(work)) {
    begin_work(interpreter_);
  }
  ~Work() override {
    if (!begun_) {
      end_work(interpreter_);
    }
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void _M_run() override {
    begun_ = true;
    counted.interpreter = interpreter_;
    enter_interpreter(interpreter_);
    work_->_M_run();
  }

 private:
  const InterpreterId interpreter_;
  const std::thread::_State_ptr work_;
  bool begun_ = false;
};

using StartThread = void (*)(std::thread*, std::thread::_State_ptr, void (*)());

StartThread stock_start_thread() {
  static const auto stock = reinterpret_cast<StartThread>(
      dlsym(dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD), INTERPOOL_START_THREAD));
  return stock;
}

}  // namespace
}  // namespace interpool

using namespace interpool;

void interpool::start_threads_apart(bool apart) {
  starts_apart = apart;
}

// std::thread's own start of one. Throws std::system_error if the system has no more threads.
extern "C" INTERPOOL_API void interpool_start_thread(std::thread* thread, std::thread::_State_ptr work,
                                                     void (*depend)()) asm("ip_" INTERPOOL_START_THREAD);

void interpool_start_thread(std::thread* thread, std::thread::_State_ptr work, void (*depend)()) {
  const InterpreterId here = current_interpreter();
  if (here > kHost) {
    work = std::make_unique<Work>(here, std::move(work));
  }
  stock_start_thread()(thread, std::move(work), depend);
}

extern "C" {

INTERPOOL_API int ip_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                    void* (*function)(void*), void* argument) {
  const InterpreterId here = current_interpreter();
  if (here <= kHost) {
    return create(thread, attributes, function, argument);
  }
  std::unique_ptr<Start> start(new (std::nothrow) Start{here, function, argument});
  if (start == nullptr) {
    return EAGAIN;
  }
  begin_work(here);  // at once: a look must not miss one that has been started
  const int failure = create(thread, attributes, &run, start.get());
  if (failure == 0) {
    static_cast<void>(start.release());
  } else {
    end_work(here);
  }
  return failure;
}

// CPython keeps a thread's state in such a key, and hardly any other code uses them.
INTERPOOL_API int ip_pthread_setspecific(pthread_key_t key, const void* value) {
  if (value != nullptr) {
    may_have_states(true);
  }
  return pthread_setspecific(key, value);
}

}  // extern "C"
