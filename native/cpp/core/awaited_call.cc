#include "awaited_call.h"

#include <pthread.h>

#include <utility>

#include "../seam/reported.h"
#include "../seam/thread.h"
#include "model_thread.h"
#include "session.h"

namespace interpool {

std::shared_ptr<AwaitedCall> AwaitedCall::start(std::shared_ptr<Movable> movable, std::vector<Value> args,
                                                Keywords keywords, CallerModes caller,
                                                std::function<void(std::shared_ptr<AwaitedCall>)> ended) {
  std::shared_ptr<AwaitedCall> call(new AwaitedCall(std::move(movable), std::move(args), std::move(keywords),
                                                    std::move(caller), std::move(ended)));
  if (!call->movable_->pool()->acquire_for(call->movable_->affinity(), call)) {
    call->wait();
  }
  return call;
}

// A pool that is closed or grows, or an object with interpreters of its own: acquire() knows what to do.
void AwaitedCall::wait() {
  start_model_thread(
      [self = shared_from_this()] {
        pthread_setname_np(pthread_self(), "interpool-await");
        std::shared_ptr<Session> session;
        try {
          session = Session::acquire(self->movable_->pool(), self->movable_->affinity(), std::nullopt);
        } catch (...) {
          self->end([failure = std::current_exception()]() -> Value { std::rethrow_exception(failure); });
          return;
        }
        self->run(session);
      },
      Directory::kOwn);
}

void AwaitedCall::leased(Interpreter* interpreter) noexcept {
  try {
    if (interpreter == nullptr) {
      wait();
      return;
    }
    auto session = Session::adopt(movable_->pool(), *interpreter);
    ModelThread::of(*interpreter, movable_->affinity())->post([self = shared_from_this(), session] {
      self->run(session);
    });
  } catch (...) {
    end([failure = std::current_exception()]() -> Value { std::rethrow_exception(failure); });
  }
}

void AwaitedCall::run(const std::shared_ptr<Session>& session) {
  end([&] {
    std::shared_ptr<WatchedCall> call;
    {
      const std::lock_guard lock(mutex_);
      if (!cancelled_) {
        call_ = call = std::make_shared<WatchedCall>(session->interpreter());
      }
    }
    std::optional<Value> result;
    std::exception_ptr failure;
    if (call != nullptr) {
      call->begin();
      try {
        result = session->call_movable(movable_, args_, keywords_, caller_, *call, [this] {
          const std::lock_guard lock(mutex_);
          return cancelled_;
        });
      } catch (...) {
        failure = std::current_exception();
      }
      call->end();
    }
    {
      const std::lock_guard lock(mutex_);
      call_ = nullptr;
    }
    session->close();  // before the caller hears of the end: it may call again
    if (failure) {
      std::rethrow_exception(failure);
    }
    return result.has_value() ? std::move(*result) : Value();
  });
}

void AwaitedCall::end(const std::function<Value()>& outcome) {
  std::optional<Value> result;
  std::exception_ptr failure;
  try {
    result = outcome();
  } catch (...) {
    failure = std::current_exception();
  }
  args_.clear();
  keywords_.clear();
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    failure_ = failure;
  }
  reported([&] { std::exchange(ended_, nullptr)(shared_from_this()); });
}

Value AwaitedCall::take() {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return std::move(result_).value();
}

void AwaitedCall::cancel() {
  std::shared_ptr<WatchedCall> running;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    running = call_;
  }
  if (movable_->pool()->stop_waiting(*this)) {
    end([] { return Value(); });
  } else if (running != nullptr) {
    running->interrupt();
  }
}

}  // namespace interpool
