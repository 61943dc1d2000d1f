// The thread on which a model's calls run in one interpreter.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>

#include "../seam/interpreter.h"

namespace interpool {

// Served models are written for a process whose one thread loads them and answers. What is bound to a thread
// is made in the load and used by calls: a database's connection, thread-local data, the decimal module's
// context, numpy's error state. So each model has one thread in each interpreter, for all connections that
// bring its requests. No two models have the same.
//
// Started when first asked for; ends when it is forgotten, after what it was given to do. All
// functions: any thread, no GIL.
class ModelThread {
 public:
  // That model's in that interpreter, which the caller has leased for it. Throws std::system_error when the
  // system has no more threads.
  static std::shared_ptr<ModelThread> of(const Interpreter& interpreter, const std::string& model);
  // The model is gone there, or the interpreter is: the next thread of that name is another one.
  static void forget(const Interpreter& interpreter, const std::string& model);
  static void forget_all(const Interpreter& interpreter);

  ~ModelThread();
  ModelThread(const ModelThread&) = delete;
  ModelThread& operator=(const ModelThread&) = delete;

  // After what it was given before. Returns at once; `work` must not throw.
  void post(std::function<void()> work);
  // The same, and waits for it; throws what it threw.
  template <typename Work>
  void run(const Work& work) {
    struct {
      const Work& work;
      std::exception_ptr failure{};
      std::binary_semaphore done{0};
    } call{work};
    post([&call] {  // one pointer: nothing is allocated for it
      try {
        call.work();
      } catch (...) {
        call.failure = std::current_exception();
      }
      call.done.release();
    });
    call.done.acquire();
    if (call.failure) {
      std::rethrow_exception(std::exchange(call.failure, nullptr));
    }
  }

 private:
  struct Queue;

  explicit ModelThread(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  const std::shared_ptr<Queue> queue_;  // the thread has it, too
};

}  // namespace interpool
