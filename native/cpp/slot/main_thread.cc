#include "main_thread.h"

#include <pthread.h>

#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "../seam/reported.h"
#include "../seam/thread.h"

namespace interpool {
namespace {

constexpr std::chrono::seconds kPatience{1};  // with one piece of work, before the spare does the next
constexpr std::chrono::milliseconds kMoment{100};

thread_local bool here = false;

}  // namespace

MainThread& MainThread::get() {
  static auto* const thread = new MainThread;
  return *thread;
}

bool MainThread::is_here() {
  return here;
}

void MainThread::start(const std::function<void()>& first) {
  auto started = std::make_shared<std::promise<void>>();
  auto result = started->get_future();
  start_model_thread([this, &first, started] {
    pthread_setname_np(pthread_self(), "interpool-main");
    here = true;
    try {
      first();
    } catch (...) {
      started->set_exception(std::current_exception());
      return;
    }
    started->set_value();
    run_main();
  });
  result.get();
  // If the system has no more threads, there is none: what is queued waits for what is under way.
  reported([this] {
    start_model_thread([this] {
      pthread_setname_np(pthread_self(), "interpool-spare");
      here = true;
      run_spare();
    });
  });
}

void MainThread::run_later(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  (main_busy_ ? behind_ : wake_).notify_one();
}

void MainThread::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  idle_.wait(lock, [this] { return is_idle(); });
}

bool MainThread::close_if_idle() {
  std::unique_lock lock(mutex_);
  const bool idle =
      idle_.wait_for(lock, kMoment, [this] { return (closed_ || queue_.empty()) && is_idle(); });
  closed_ = closed_ || idle;
  return idle;
}

void MainThread::run_main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return !queue_.empty() && !closed_; });
    began_ = Clock::now();
    if (queue_.size() > 1) {
      behind_.notify_one();
    }
    run_next(lock, main_busy_);
  }
}

void MainThread::run_spare() {
  std::unique_lock lock(mutex_);
  for (;;) {
    behind_.wait(lock, [this] { return main_busy_ && !queue_.empty() && !closed_; });
    if (Clock::now() - began_ >= kPatience) {
      run_next(lock, spare_busy_);
    } else {
      const auto over = began_ + kPatience;
      lock.unlock();
      std::this_thread::sleep_until(over);
      lock.lock();
    }
  }
}

// The mutex is held, but while the work runs.
void MainThread::run_next(std::unique_lock<std::mutex>& lock, bool& busy) {
  std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  busy = true;
  lock.unlock();
  reported(work);
  work = nullptr;
  lock.lock();
  busy = false;
  idle_.notify_all();
}

}  // namespace interpool
