// Threads that have a working directory of their own.
//
// A thread shares its directory with the one that starts it: pthread_create asks clone() for CLONE_FS.
// unshare(CLONE_FS) ends that, but containers forbid it by default (Docker). They do not forbid clone()
// without CLONE_FS. So a task that was cloned so starts the thread, and ends. Its maker is stopped meanwhile
// (CLONE_VFORK), and it uses its maker's thread-local memory, as posix_spawn's child does.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

// The C library's clone() by its other name: ThreadSanitizer takes a call of clone() for a fork.
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...);  // NOLINT

namespace interpool {

class ApartThread {
 public:
  // Whether the system allows it. Any thread, any GIL.
  static bool possible() {
    pthread_t thread{};
    const auto nothing = [](void* argument) { return argument; };
    return start(&thread, nullptr, nothing, nullptr) == 0 && pthread_join(thread, nullptr) == 0;
  }

  // As pthread_create; also an error if the system does not allow it. Any thread, any GIL.
  static int start(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) {
    std::unique_ptr<Body> body;
    try {
      body = std::make_unique<Body>(Body{function, argument, 0});
    } catch (const std::bad_alloc&) {
      return EAGAIN;
    }
    void* const stack =
        ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
      return EAGAIN;
    }
    // No signal's handler may run in the task. Also those that glibc keeps for itself: not by
    // pthread_sigmask.
    uint64_t all = ~uint64_t{0};
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &body->signals, sizeof all);
    const uint64_t signals = body->signals;
    Task task{thread, attributes, body.get(), 0};
    constexpr int kFlags =
        CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_VFORK;
    const int made = ::__clone(&create, static_cast<std::byte*>(stack) + kStack, kFlags, &task);
    const int failure = made < 0 ? errno : task.failure;
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &signals, nullptr, sizeof signals);
    ::munmap(stack, kStack);
    if (failure == 0) {
      static_cast<void>(body.release());
    }
    return failure;
  }

 private:
  static constexpr size_t kStack = size_t{256} << 10;

  struct Body {
    void* (*function)(void*);
    void* argument;
    uint64_t signals;  // that are blocked in the thread, as the kernel writes them
  };
  struct Task {
    pthread_t* thread;
    const pthread_attr_t* attributes;
    Body* body;
    int failure;
  };

  static int create(void* given) {
    auto* const task = static_cast<Task*>(given);
    task->failure = pthread_create(task->thread, task->attributes, &run, task->body);
    return 0;
  }

  static void* run(void* given) {
    const Body body = *std::unique_ptr<Body>(static_cast<Body*>(given));
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &body.signals, nullptr, sizeof body.signals);
    return body.function(body.argument);
  }
};

}  // namespace interpool
