// A worker's connection, by which TorchServe or the direct address asks it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answered_requests.h"
#include "pool.h"
#include "watched_call.h"
#include "wire.h"

namespace interpool {

// What a connection does with each message, inside a leased interpreter. With the connection's first message,
// it calls `module.function(worker, load_command)` there, which makes `(message) -> (bytes, keep_open)`. That
// is called with each message.
struct Service {
  std::string module;
  std::string function;
  std::string worker;
  std::string affinity;
  bool pinned = false;  // to one interpreter, for as long as the connection and that interpreter last
  std::optional<int64_t> share;  // see Pool::set_share
};

// Its thread waits for a message without an interpreter and without any GIL. It leases an interpreter only
// while one is being answered: by the model's own thread there. If the connection is pinned, this thread
// answers, as the model is then loaded for it alone. A message that comes by a channel needs this thread only
// in rare cases: it goes straight to the model's, once there is a lease. One message is answered at a time.
// `mutex_` guards what stands below it; it is a leaf lock.
class INTERPOOL_PUBLIC Connection final : public LeaseListener,
                                          public std::enable_shared_from_this<Connection> {
 public:
  // Ends `wire` also when it throws: ArgumentError for a share, std::system_error if no thread starts. When
  // all is over, writes a uint64 1 to `done_fd`, which the caller keeps open until then.
  static std::shared_ptr<Connection> serve(std::shared_ptr<Pool> pool, std::shared_ptr<Wire> wire,
                                           Service service, int done_fd);

  // Ends it: a running call finishes in its interpreter, its answer is dropped, and a message that
  // still waits for an interpreter is dropped, too. Any thread.
  void close();

  // What WatchedCall says of the message's that is being answered, or was last. Any thread, any GIL, but
  // for give_up().
  std::optional<double> running() const;  // nullopt if none runs
  bool interrupt();                       // false if none runs
  std::string where() const;
  bool importing() const;
  // Leaves the running call to itself: its interpreter is retired, and the connection closed, which ends
  // when the call does, if ever. The interpreter's number; nullopt if no call runs. Any thread, no GIL.
  std::optional<int> give_up();
  // The ids of the requests that the running call answers; none if no call runs. Any thread.
  std::vector<std::string> requests() const;
  bool alive() const;
  // Its first message, TorchServe's load command; "" before it came. Any thread.
  std::string load_command() const;
  // False when it is still alive after `timeout` seconds; ArgumentError for NaN. No GIL may be held.
  bool join(double timeout);

 private:
  using RequestIds = std::vector<std::string_view>;
  class Lease;
  struct Turn;

  Connection(std::shared_ptr<Pool> pool, std::shared_ptr<Wire> wire, Service service, int done_fd);
  void run();
  void answer_all();
  bool answer(const Frame& frame);
  Interpreter::Answer answer_in_turn(const Frame& frame);
  // On the thread that asks: has the model's thread answer it, once an interpreter is free.
  bool take(const Frame& frame);
  void leased(Interpreter* interpreter) noexcept override;
  void answer_taken(Turn& turn);
  void wait_for_turn();
  void end_turn();
  bool send(std::string answer, const RequestIds& ids);
  bool refuse(const RequestIds& ids);
  Interpreter::Answer answer_in(WatchedCall& call, const Interpreter::Message& message);
  Interpreter& acquire();
  void release_services();
  std::shared_ptr<WatchedCall> call() const;

  const std::shared_ptr<Pool> pool_;
  const std::shared_ptr<Wire> wire_;
  const Service service_;
  const int done_fd_;
  std::atomic<bool> closing_{false};  // written with `mutex_` held
  std::atomic<bool> over_{false};     // no more messages come
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  bool busy_ = false;                     // a message is being answered
  std::shared_ptr<WatchedCall> call_;     // the last one; null before the first
  const RequestIds* requests_ = nullptr;  // of the running call, which has them
  std::string load_command_;              // written once, by the thread, which reads it without the lock
  // For the thread that has made it busy: the interpreter of a pinned connection, and what answers in each.
  std::optional<int> home_;
  std::map<Interpreter*, void*> services_;
  std::optional<Frame> taken_;      // waits for a lease
  AnsweredRequests::Ids answered_;  // the last message's, if it was
};

}  // namespace interpool
