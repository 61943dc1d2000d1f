// Threads that run models: with a stack of a known size and, if wanted, a working directory of their own.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
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

// Whether this thread's directory, umask and niceness may be a model's.
inline thread_local bool is_models_thread = false;

// The thread that starts threads for models' threads. A new thread inherits umask, niceness and directory.
class ThreadStarter {
 public:
  // First on a thread that is no model's. Throws std::system_error when the system has no more threads.
  static ThreadStarter& of_process() {
    static auto* const starter = new ThreadStarter;  // never destroyed, as its thread uses it
    return *starter;
  }

  // What `create` returns there. Any thread, any GIL: `create` takes none, and no lock.
  int run(std::function<int()> create) {
    std::packaged_task<int()> task(std::move(create));
    auto result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return result.get();
  }

 private:
  ThreadStarter() {
    pthread_t thread{};
    const auto loop = [](void* starter) -> void* { static_cast<ThreadStarter*>(starter)->loop(); };
    if (const int failure = pthread_create(&thread, nullptr, loop, this); failure != 0) {
      throw std::system_error(failure, std::generic_category(), "a thread cannot be started");
    }
    pthread_detach(thread);
  }

  [[noreturn]] void loop() {
    pthread_setname_np(pthread_self(), "interpool-start");
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;  // a leaf lock, which guards `tasks_`
  std::condition_variable changed_;
  std::deque<std::packaged_task<int()>> tasks_;
};

// Runs `work` on a detached thread; what it throws goes to stderr. If the system gives it no directory of
// its own, it shares one. Throws std::system_error when the system has no more threads.
inline void start_model_thread(std::function<void()> work, Directory directory = Directory::kShared) {
  struct Body {
    std::function<void()> work;
    bool is_models;
  };
  auto owned = std::make_unique<Body>(Body{std::move(work), directory == Directory::kOwn});
  const auto create = [&owned, directory] {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kModelStack);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread{};
    const auto run = [](void* argument) -> void* {
      const std::unique_ptr<Body> body(static_cast<Body*>(argument));
      is_models_thread = body->is_models;
      reported(body->work);
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
    return failure;
  };
  if (directory == Directory::kOwn) {
    ThreadStarter::of_process();  // it has to be there before the first model's thread
  }
  const int failure = is_models_thread ? ThreadStarter::of_process().run(create) : create();
  if (failure != 0) {
    throw std::system_error(failure, std::generic_category(), "a thread cannot be started");
  }
  static_cast<void>(owned.release());
}

}  // namespace interpool
