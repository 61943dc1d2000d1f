#include "model_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <semaphore>
#include <utility>
#include <vector>

#include "../seam/reported.h"
#include "../seam/thread.h"

namespace interpool {
namespace {

using Key = std::pair<const Interpreter*, std::string>;

// A leaf lock, and what it guards. Never destroyed, as threads may outlast static destructors.
struct Registry {
  std::mutex mutex;
  std::map<Key, std::shared_ptr<ModelThread>> threads;
};

Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

}  // namespace

// `mutex` guards what stands below it; a leaf lock.
struct ModelThread::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> works;
  bool ending = false;
  int number = 0;
  std::binary_semaphore begun{0};

  void loop() {
    pthread_setname_np(pthread_self(), "interpool-model");
    number = static_cast<int>(syscall(SYS_gettid));
    begun.release();
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !works.empty() || ending; });
      if (works.empty()) {
        return;
      }
      const std::function<void()> work = std::move(works.front());
      works.pop_front();
      lock.unlock();
      reported(work);
      lock.lock();
    }
  }
};

std::shared_ptr<ModelThread> ModelThread::of(const Interpreter& interpreter, const std::string& model) {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.threads.find({&interpreter, model});
    if (found != all.threads.end()) {
      return found->second;
    }
  }
  const auto queue = std::make_shared<Queue>();
  start_model_thread([queue] { queue->loop(); }, Directory::kOwn);
  queue->begun.acquire();
  // Ends where there is another one by now: nothing was given to it.
  std::shared_ptr<ModelThread> made(new ModelThread(queue));
  const std::lock_guard lock(all.mutex);
  return all.threads.try_emplace({&interpreter, model}, std::move(made)).first->second;
}

void ModelThread::forget(const Interpreter& interpreter, const std::string& model) {
  std::shared_ptr<ModelThread> gone;  // goes when the lock is no longer held
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.threads.find({&interpreter, model}); found != all.threads.end()) {
    gone = std::move(found->second);
    all.threads.erase(found);
  }
}

void ModelThread::forget_all(const Interpreter& interpreter) {
  std::vector<std::shared_ptr<ModelThread>> gone;  // likewise
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (auto each = all.threads.lower_bound({&interpreter, ""});
       each != all.threads.end() && each->first.first == &interpreter; each = all.threads.erase(each)) {
    gone.push_back(std::move(each->second));
  }
}

ModelThread::~ModelThread() {
  const std::lock_guard lock(queue_->mutex);
  queue_->ending = true;
  queue_->changed.notify_one();
}

void ModelThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->works.push_back(std::move(work));
  }
  queue_->changed.notify_one();
}

void ModelThread::run(const std::function<void()>& work) {
  std::binary_semaphore done{0};
  std::exception_ptr failure;
  post([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    done.release();
  });
  done.acquire();
  if (failure) {
    std::rethrow_exception(std::exchange(failure, nullptr));
  }
}

int ModelThread::number() const {
  return queue_->number;
}

}  // namespace interpool
