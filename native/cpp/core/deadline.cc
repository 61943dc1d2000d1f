#include "deadline.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>

#include "../seam/object_ref.h"
#include "../seam/thread.h"
#include "clock.h"
#include "model_thread.h"

namespace interpool {
namespace {

// Code may catch everything, once or twice, and is interrupted again. Not at once: it
// may be cleaning up. After each interruption, this part of the grace is waited.
constexpr std::array<double, 3> kPartsOfGrace = {0.5, 0.25, 0.25};

constexpr std::chrono::milliseconds kImportTurn{20};  // between two looks whether an import is over

std::string text_of(double count) {
  std::string text = std::to_string(count);
  text.erase(text.find_last_not_of('0') + 1);
  return (text.back() == '.' ? text.substr(0, text.size() - 1) : text) + " s";
}

}  // namespace

uint64_t new_call_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void Deadline::Call::set_what(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

std::string Deadline::Call::what() const {
  const std::lock_guard lock(mutex_);
  return what_;
}

struct Deadline::Job {
  Job(Work given, uint64_t number) : work(std::move(given)), call(number) {}

  Work work;
  Call call;
  bool begun = false;
  bool done = false;
  Clock::time_point began;
  std::exception_ptr failure;
  std::string where;       // the stack at the interruption
  bool importing = false;  // where it is not interrupted
  bool told = false;       // by this interruption
};

std::shared_ptr<Deadline> Deadline::start(Interpreter& interpreter, const std::string& model, Limits limits,
                                          std::function<void()> given_up) {
  std::shared_ptr<Deadline> deadline(new Deadline(interpreter, limits, std::move(given_up)));
  if (model.empty()) {
    start_model_thread(
        [deadline] {
          pthread_setname_np(pthread_self(), "interpool-call");
          deadline->loop();
        },
        Directory::kOwn);
  } else {
    ModelThread::of(interpreter, model)->post([deadline] { deadline->loop(); });
  }
  return deadline;
}

void Deadline::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return !queue_.empty() || stopping_ || given_up_; });
    if (queue_.empty() || given_up_) {
      return;
    }
    const std::shared_ptr<Job> job = queue_.front();
    queue_.pop_front();
    job->begun = true;
    job->began = Clock::now();
    if (in_line_ > 0) {
      changed_.notify_all();
    }
    lock.unlock();
    std::exception_ptr failure;
    try {
      job->work(job->call);
    } catch (...) {
      failure = std::current_exception();
    }
    // Its caller still has what the work refers to: the session does not end here.
    job->work = nullptr;
    lock.lock();
    job->failure = failure;
    job->done = true;
    changed_.notify_all();
  }
}

bool Deadline::interrupt(const std::shared_ptr<Job>& job, std::unique_lock<std::mutex>& lock) {
  const auto told = [job, self = shared_from_this()](Interpreter::Interruption interruption) {
    const std::lock_guard telling(self->mutex_);
    if (job->where.empty() || !interruption.delivered) {
      job->where = std::move(interruption.where);
    }
    job->importing = !interruption.delivered;
    job->told = true;
    self->changed_.notify_all();
  };
  for (const double part : kPartsOfGrace) {
    const auto until = Clock::now() + seconds(limits_.grace * part);
    do {  // again and again as long as it is importing
      job->told = false;
      lock.unlock();
      interpreter_.interrupt(job->call.number(), told);
      lock.lock();
      changed_.wait_until(lock, until, [&] { return job->done || (job->told && job->importing); });
      if (!job->done && job->told && job->importing) {
        changed_.wait_until(lock, std::min(until, Clock::now() + kImportTurn), [&] { return job->done; });
      }
      if (job->done) {
        return true;
      }
    } while (Clock::now() < until);
  }
  return false;
}

void Deadline::run(Work work) {
  auto job = std::make_shared<Job>(std::move(work), new_call_number());
  std::unique_lock lock(mutex_);
  if (given_up_) {
    refuse();
  }
  if (stopping_) {  // the thread may have ended
    refuse_ended_session();
  }
  queue_.push_back(job);
  work_.notify_one();
  const auto over = [&] { return job->done || (given_up_ && !job->begun); };
  // Nearly always it begins at once, and nobody is notified of that.
  if (!changed_.wait_until(lock, Clock::now() + seconds(limits_.call), over)) {
    ++in_line_;
    changed_.wait(lock, [&] { return job->begun || given_up_; });
    --in_line_;
  }
  if (!job->begun) {
    std::erase(queue_, job);
    refuse();
  }
  if (changed_.wait_until(lock, job->began + seconds(limits_.call), over)) {
    if (job->failure) {
      std::rethrow_exception(job->failure);
    }
    return;
  }
  const bool back = interrupt(job, lock);
  const std::string what = job->call.what();
  std::string message = (what.empty() ? "a call into" : what + " in") + " interpreter " +
                        std::to_string(interpreter_.id()) + " took longer than its limit of " +
                        text_of(limits_.call) + " and was interrupted";
  if (back) {
    message += "; the session goes on. Give it longer (call_limit), or less to do.";
  } else {
    given_up_ = true;
    message += ", but did not come back within " + text_of(limits_.grace) + " more: " +
               (job->importing ? "it is in an import, which is not interrupted, as half a module would stay"
                               : "it is in native code that does not return") +
               ". Its interpreter is retired, and its session has ended; acquire another.";
  }
  message += job->where.empty() ? "" : " It was here:" + job->where;
  if (!back) {
    changed_.notify_all();
    work_.notify_one();
    lock.unlock();
    on_given_up_();
  }
  throw CallTimeoutError(message);
}

void Deadline::refuse() const {
  throw InterpreterRetiredError("interpreter " + std::to_string(interpreter_.id()) +
                                " was retired, because a call into it did not come back, and its objects "
                                "are lost; acquire another session.");
}

void Deadline::require() const {
  const std::lock_guard lock(mutex_);
  if (given_up_) {
    refuse();
  }
}

bool Deadline::given_up() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

void Deadline::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  work_.notify_one();
}

}  // namespace interpool
