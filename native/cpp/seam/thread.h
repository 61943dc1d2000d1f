// Threads that run models: with a stack of a known size and, if wanted, a working directory of their own.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include "apart_thread.h"
#include "reported.h"

namespace interpool {

// A stack takes memory only as far as it is used. The default may be 2 MiB, or what `ulimit -s` says: too
// little for what Python lets code recurse through C.
inline constexpr size_t kModelStack = size_t{64} << 20;

// Whose working directory a thread has: that of the thread that starts it, or its own, which begins as that.
// The threads that it starts then share its own, as in a process of the model's.
enum class Directory : uint8_t { kShared, kOwn };

// Runs `work` on a detached thread; what it throws goes to stderr. If the system gives it no directory of
// its own, it shares one. Throws std::system_error when the system has no more threads.
inline void start_model_thread(std::function<void()> work, Directory directory = Directory::kShared) {
  auto owned = std::make_unique<std::function<void()>>(std::move(work));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kModelStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  const auto run = [](void* argument) -> void* {
    const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
    reported(*body);
    return nullptr;
  };
  int failure = EPERM;
  if (directory == Directory::kOwn) {
    failure = ApartThread::start(&thread, &attributes, run, owned.get());
  }
  if (failure != 0) {
    failure = pthread_create(&thread, &attributes, run, owned.get());
  }
  pthread_attr_destroy(&attributes);
  if (failure != 0) {
    throw std::system_error(failure, std::generic_category(), "a thread cannot be started");
  }
  static_cast<void>(owned.release());
}

}  // namespace interpool
