#include "deadline.h"

#include <pthread.h>

#include <exception>
#include <utility>

#include "../seam/object_ref.h"
#include "../seam/thread.h"
#include "model_thread.h"

namespace interpool {

// `failure` is written before the call's end, and read after it.
struct Deadline::Job final : WatchedCall {
  Job(Interpreter& interpreter, Work given) : WatchedCall(interpreter), work(std::move(given)) {}

  Work work;
  std::exception_ptr failure;
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
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return !queue_.empty() || stopping_; });
      if (queue_.empty()) {
        return;
      }
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    job->begin();
    try {
      job->work(*job);
    } catch (...) {
      job->failure = std::current_exception();
    }
    // Its caller still has what the work refers to: the session does not end here.
    job->work = nullptr;
    if (!job->end()) {
      return;  // it was given up
    }
  }
}

void Deadline::run(Work work) {
  const auto job = std::make_shared<Job>(interpreter_, std::move(work));
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) {
      throw retired();
    }
    if (stopping_) {  // the thread may have ended
      refuse_ended_session();
    }
    queue_.push_back(job);
    work_.notify_one();
  }
  if (job->ends_within(limits_.call)) {
    if (job->failure) {
      std::rethrow_exception(job->failure);
    }
    return;
  }
  const bool back = job->interrupt_for(limits_.grace) || !job->give_up();
  const std::string what = job->what();
  std::string message = (what.empty() ? "a call into" : what + " in") + " interpreter " +
                        std::to_string(interpreter_.id()) + " took longer than its limit of " +
                        number_text(limits_.call) + " s and was interrupted";
  if (back) {
    message += "; the session goes on. Give it longer (call_limit), or less to do.";
  } else {
    message += ", but did not come back within " + number_text(limits_.grace) + " s more: " +
               (job->importing() ? "it is in an import, which is not interrupted, as half a module would stay"
                                 : "it is in native code that does not return") +
               ". Its interpreter is retired, and its session has ended; acquire another.";
  }
  const std::string where = job->where();
  message += where.empty() ? "" : " It was here:" + where;
  if (!back) {
    refuse_waiting();
    on_given_up_();
  }
  throw CallTimeoutError(message);
}

// The calls behind one that was given up.
void Deadline::refuse_waiting() {
  std::deque<std::shared_ptr<Job>> waiting;
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    waiting.swap(queue_);
  }
  for (const auto& job : waiting) {
    job->work = nullptr;
    job->failure = std::make_exception_ptr(retired());
    job->end();
  }
}

InterpreterRetiredError Deadline::retired() const {
  return InterpreterRetiredError("interpreter " + std::to_string(interpreter_.id()) +
                                 " was retired, because a call into it did not come back, and its objects "
                                 "are lost; acquire another session.");
}

void Deadline::require() const {
  if (given_up()) {
    throw retired();
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
