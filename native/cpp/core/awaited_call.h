// A call of a movable object that no thread waits for.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "movable.h"
#include "watched_call.h"

namespace interpool {

class Session;

// It waits for its lease in the pool's queue, and runs on the object's own thread in that interpreter. Any
// thread, no GIL. `mutex_` guards what stands below it and is a leaf lock.
class INTERPOOL_PUBLIC AwaitedCall final : public LeaseListener,
                                           public std::enable_shared_from_this<AwaitedCall> {
 public:
  // `caller`: modes in which the object's code runs. `ended` is called once, on any thread, which holds no
  // lock and no GIL, when take() has an outcome.
  static std::shared_ptr<AwaitedCall> start(std::shared_ptr<Movable> movable, std::vector<Value> args,
                                            Keywords keywords, CallerModes caller,
                                            std::function<void(std::shared_ptr<AwaitedCall>)> ended);

  // What it returned, once; throws what it threw. After `ended`.
  Value take();
  // The caller wants no outcome. If the call waits, it does not begin; Python code that runs is interrupted,
  // once.
  void cancel();

 private:
  AwaitedCall(std::shared_ptr<Movable> movable, std::vector<Value> args, Keywords keywords,
              CallerModes caller, std::function<void(std::shared_ptr<AwaitedCall>)> ended)
      : movable_(std::move(movable)),
        args_(std::move(args)),
        keywords_(std::move(keywords)),
        caller_(std::move(caller)),
        ended_(std::move(ended)) {}

  void leased(Interpreter* interpreter) noexcept override;
  void wait();  // by a thread
  void run(const std::shared_ptr<Session>& session);
  void end(const std::function<Value()>& outcome);

  const std::shared_ptr<Movable> movable_;
  std::vector<Value> args_;  // until it has run
  Keywords keywords_;
  const CallerModes caller_;
  std::function<void(std::shared_ptr<AwaitedCall>)> ended_;
  std::mutex mutex_;
  bool cancelled_ = false;
  std::shared_ptr<WatchedCall> call_;  // while it runs
  std::optional<Value> result_;
  std::exception_ptr failure_;
};

}  // namespace interpool
