// One of TorchServe's worker connections, served by a thread of its own.
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

namespace interpool {

// What a connection does with each message, inside a leased interpreter: it calls what
// `module.function(worker, fd, load_command)` has made there of the connection's first message,
// `(message) -> (bytes, keep_open)`.
struct Service {
  std::string module;
  std::string function;
  std::string worker;
  std::string affinity;
  bool pinned = false;  // to one interpreter, for as long as the connection and that interpreter last
  std::optional<int64_t> share;  // see Pool::set_share
};

// The thread waits for a message without an interpreter and without any GIL, and
// leases an interpreter only while one is being answered: by the model's own thread there, or by
// this one if it is pinned, as the model is then loaded for it alone. `mutex_` guards what stands
// below it, and orders shutdown against close of the descriptor; it is a leaf lock.
class INTERPOOL_PUBLIC Connection {
 public:
  // Takes `fd` over, also when it throws: ArgumentError for a share, std::system_error where no thread
  // starts. When all is over, writes a uint64 1 to `done_fd`, which the caller keeps open until then.
  static std::shared_ptr<Connection> serve(std::shared_ptr<Pool> pool, int fd, Service service, int done_fd);

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

  Connection(std::shared_ptr<Pool> pool, int fd, Service service, int done_fd);
  void run();
  bool answer_all();
  bool answer(const Interpreter::Message& message, const RequestIds& ids);
  bool send(const std::string& answer, const RequestIds& ids);
  bool refuse(const RequestIds& ids);
  Interpreter::Answer answer_in(WatchedCall& call, const Interpreter::Message& message);
  Interpreter& acquire();
  void release_services();
  std::shared_ptr<WatchedCall> call() const;

  const std::shared_ptr<Pool> pool_;
  const int fd_;
  const Service service_;
  const int done_fd_;
  std::atomic<bool> closing_{false};  // written with `mutex_` held
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool open_ = true;
  std::shared_ptr<WatchedCall> call_;     // the last one; null before the first
  const RequestIds* requests_ = nullptr;  // of the running call; the thread's, while it runs
  std::string load_command_;              // written once, by the thread, which reads it without the lock
  // For its own thread only: the interpreter of a pinned connection, and what answers in each.
  std::optional<int> home_;
  std::map<Interpreter*, void*> services_;
  AnsweredRequests::Ids answered_;  // the last message's, if it was
};

}  // namespace interpool
