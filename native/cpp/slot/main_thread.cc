#include "main_thread.h"

#include <pthread.h>

#include <exception>
#include <future>
#include <memory>

#include "../seam/thread.h"

namespace interpool {

MainThread& MainThread::get() {
  static auto* const thread = new MainThread;
  return *thread;
}

void MainThread::start(const std::function<void()>& first) {
  auto started = std::make_shared<std::promise<void>>();
  auto result = started->get_future();
  start_model_thread([this, &first, started] {
    pthread_setname_np(pthread_self(), "interpool-main");
    try {
      first();
    } catch (...) {
      started->set_exception(std::current_exception());
      return;
    }
    started->set_value();
    loop();
  });
  result.get();
}

void MainThread::run_later(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void MainThread::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  idle_.wait(lock, [this] { return !busy_; });
}

void MainThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return !queue_.empty() && !closed_; });
    std::vector<std::function<void()>> work;
    work.swap(queue_);
    busy_ = true;
    lock.unlock();
    for (const auto& item : work) {
      item();
    }
    work.clear();
    lock.lock();
    busy_ = false;
    idle_.notify_all();
  }
}

}  // namespace interpool
