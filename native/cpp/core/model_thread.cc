#include "model_thread.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "../seam/reported.h"
#include "../seam/thread.h"

namespace interpool {
namespace {

// `mutex` is a leaf lock and guards what stands below it. Never destroyed, as threads may outlast static
// destructors.
struct Registry {
  std::mutex mutex;
  std::map<const Interpreter*, std::map<std::string, std::shared_ptr<ModelThread>>> threads;
};

Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

}  // namespace

// `mutex` guards what stands below it and is a leaf lock.
struct ModelThread::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> works;
  bool ending = false;

  void loop() {
    pthread_setname_np(pthread_self(), "interpool-model");
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !works.empty() || ending; });
      if (works.empty()) {
        return;
      }
      std::function<void()> work = std::move(works.front());
      works.pop_front();
      lock.unlock();
      reported(work);
      work = nullptr;  // its destructor may take locks
      lock.lock();
    }
  }
};

std::shared_ptr<ModelThread> ModelThread::of(const Interpreter& interpreter, const std::string& model) {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    const auto& own = all.threads[&interpreter];
    if (const auto found = own.find(model); found != own.end()) {
      return found->second;
    }
  }
  const auto queue = std::make_shared<Queue>();
  start_model_thread([queue] { queue->loop(); }, Directory::kOwn);
  // If another caller has made one meanwhile, this one ends: it has no work yet.
  std::shared_ptr<ModelThread> made(new ModelThread(queue));
  const std::lock_guard lock(all.mutex);
  return all.threads[&interpreter].try_emplace(model, std::move(made)).first->second;
}

void ModelThread::forget(const Interpreter& interpreter, const std::string& model) {
  std::shared_ptr<ModelThread> gone;  // goes when the lock is no longer held
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto& own = all.threads[&interpreter];
  if (const auto found = own.find(model); found != own.end()) {
    gone = std::move(found->second);
    own.erase(found);
  }
}

void ModelThread::forget_all(const Interpreter& interpreter) {
  std::map<std::string, std::shared_ptr<ModelThread>> gone;  // likewise
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  gone.swap(all.threads[&interpreter]);
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

}  // namespace interpool
