#include "main_thread.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "../seam/reported.h"
#include "../seam/thread.h"

namespace interpool {
namespace {

constexpr std::chrono::seconds kPatience{1};  // with one piece of work, before a relief does the next
constexpr std::chrono::milliseconds kMoment{100};
constexpr size_t kMostRunners = 16;

thread_local std::optional<size_t> here;  // which runner the calling thread is

}  // namespace

MainThread& MainThread::get() {
  static auto* const thread = new MainThread;
  return *thread;
}

bool MainThread::is_here() {
  return here.has_value();
}

void MainThread::start(const std::function<void()>& first) {
  auto started = std::make_shared<std::promise<void>>();
  auto result = started->get_future();
  start_model_thread([this, &first, started] {
    pthread_setname_np(pthread_self(), "interpool-main");
    here = 0;
    try {
      first();
    } catch (...) {
      started->set_exception(std::current_exception());
      return;
    }
    started->set_value();
    loop(0);
  });
  result.get();
  const std::lock_guard lock(mutex_);
  add_relief();
}

void MainThread::run_later(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    alert();
  }
  wake_.notify_one();
}

void MainThread::begin_wait() {
  if (here.has_value()) {
    const std::lock_guard lock(mutex_);
    runners_[*here].stuck_at = Clock::time_point::max();
  }
}

void MainThread::end_wait() {
  if (here.has_value()) {
    const std::lock_guard lock(mutex_);
    runners_[*here].stuck_at = Clock::now() + kPatience;
  }
}

void MainThread::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  idle_.wait(lock, [this] {
    return std::none_of(runners_.begin(), runners_.end(), [](const Runner& runner) { return runner.busy; });
  });
}

bool MainThread::close_if_idle() {
  std::unique_lock lock(mutex_);
  const bool idle = idle_.wait_for(lock, kMoment, [this] {
    return (closed_ || queue_.empty()) &&
           std::none_of(runners_.begin(), runners_.end(), [](const Runner& runner) { return runner.busy; });
  });
  closed_ = closed_ || idle;
  return idle;
}

// The mutex is held.
bool MainThread::may_run(size_t runner) const {
  return runner == 0 || (runners_[runner - 1].busy && runners_[runner - 1].stuck_at <= Clock::now());
}

// The mutex is held.
void MainThread::add_relief() {
  const size_t number = runners_.size();
  try {
    runners_.emplace_back();
  } catch (const std::bad_alloc&) {
    return;
  }
  try {
    start_model_thread([this, number] {
      pthread_setname_np(pthread_self(), "interpool-relief");
      here = number;
      loop(number);
    });
  } catch (const std::exception&) {
    runners_.pop_back();  // no more threads: what waits goes on waiting, and others with it
  }
}

// The mutex is held. Somebody waits behind work that is under way: reliefs that do not know yet look
// at it from now on, once a second.
void MainThread::alert() {
  for (size_t i = 1; i < runners_.size(); ++i) {
    if (runners_[i - 1].busy && !runners_[i].watching) {
      alert_.notify_all();
      return;
    }
  }
}

// The mutex is held, but while it waits. Returns when the runner may run something.
void MainThread::watch(size_t runner, std::unique_lock<std::mutex>& lock) {
  const Runner& elder = runners_[runner - 1];
  for (;;) {
    alert_.wait(lock, [&] { return elder.busy && !queue_.empty() && !closed_; });
    if (may_run(runner)) {
      return;
    }
    runners_[runner].watching = true;
    alert_.wait_until(lock, std::min(elder.stuck_at, Clock::now() + kPatience));
    runners_[runner].watching = false;
  }
}

void MainThread::loop(size_t runner) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (runner == 0) {
      wake_.wait(lock, [this] { return !queue_.empty() && !closed_; });
    } else {
      watch(runner, lock);
    }
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    Runner& self = runners_[runner];
    self.busy = true;
    self.stuck_at = Clock::now() + kPatience;
    if (runner + 1 == runners_.size() && runners_.size() < kMostRunners) {
      add_relief();
    }
    if (!queue_.empty()) {
      alert();
    }
    lock.unlock();
    reported(work);
    work = nullptr;
    lock.lock();
    self.busy = false;
    idle_.notify_all();
  }
}

}  // namespace interpool
