#include "connection.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "../seam/reported.h"
#include "../seam/thread.h"
#include "clock.h"
#include "model_thread.h"
#include "otf_frames.h"

namespace interpool {
namespace {

void report(const Service& service, const char* what) {
  std::fprintf(stderr, "interpool: connection of %s closed: %s\n", service.affinity.c_str(), what);
}

constexpr int kMostRounds = 256;  // through interpreters that do not answer: as many as a pool may have

constexpr int32_t kRepeatedCode = 500;  // as for others whose worker has ended
constexpr std::string_view kRepeated =
    "The worker that answered this request was stopped meanwhile. It may have been answered; ask again.";

}  // namespace

Connection::Connection(std::shared_ptr<Pool> pool, int fd, Service service, int done_fd)
    : pool_(std::move(pool)), fd_(fd), service_(std::move(service)), done_fd_(done_fd) {}

std::shared_ptr<Connection> Connection::serve(std::shared_ptr<Pool> pool, int fd, Service service,
                                              int done_fd) {
  try {
    if (service.share.has_value()) {
      pool->set_share(service.affinity, *service.share);
    }
    std::shared_ptr<Connection> connection(new Connection(std::move(pool), fd, std::move(service), done_fd));
    start_model_thread(
        [connection] {
          pthread_setname_np(pthread_self(), "interpool-conn");
          connection->run();
        },
        Directory::kOwn);
    return connection;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

// An interpreter, and the model's thread there, while a message is answered. It is given back before the
// answer is written.
class Connection::Lease {
 public:
  Lease(Connection& connection, const RequestIds& requests)
      : connection_(connection), interpreter_(connection.acquire()) {
    try {
      if (!connection_.service_.pinned) {
        thread_ = ModelThread::of(interpreter_, connection_.service_.affinity);
      }
      call_ = std::make_shared<WatchedCall>(interpreter_);
    } catch (...) {
      connection_.pool_->release(interpreter_);
      throw;
    }
    const std::lock_guard lock(connection_.mutex_);  // from now on it may be given up
    connection_.call_ = call_;
    connection_.requests_ = &requests;
  }
  ~Lease() {
    {
      const std::lock_guard lock(connection_.mutex_);
      connection_.requests_ = nullptr;
    }
    if (call_->end()) {
      connection_.pool_->release(interpreter_, answered_);
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  WatchedCall& call() const { return *call_; }
  void count(Pool::Requests answered) { answered_ = answered; }
  // On the thread that the model's calls run on.
  template <typename Work>
  void run(const Work& work) const {
    if (thread_ != nullptr) {
      thread_->run(work);
    } else {
      work();
    }
  }

 private:
  Connection& connection_;
  Interpreter& interpreter_;
  std::shared_ptr<ModelThread> thread_;
  std::shared_ptr<WatchedCall> call_;
  Pool::Requests answered_;
};

void Connection::run() {
  // Each step by itself: if one fails for lack of memory, the others are still done.
  bool left_unread = false;
  reported([&] { left_unread = answer_all(); });
  reported([&] {
    if (left_unread) {
      AnsweredRequests::of_process().remove(answered_);
    } else {
      AnsweredRequests::of_process().end(std::move(answered_));
    }
  });
  if (home_.has_value()) {
    reported([&] { pool_->unsettle(*home_); });
  }
  release_services();
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    ::close(fd_);
  }
  ended_.notify_all();
  const uint64_t one = 1;
  if (::write(done_fd_, &one, sizeof one) != sizeof one) {
    report(service_, "its end could not be reported");
  }
}

// Whether TorchServe left anything unread of what was sent to it.
bool Connection::answer_all() {
  FrameReader reader(fd_);
  try {
    while (const auto frame = reader.next()) {
      if (load_command_.empty()) {
        const std::lock_guard lock(mutex_);
        load_command_ = *frame;
      }
      const double received = in_seconds(Clock::now().time_since_epoch());
      if (!answer({*frame, reader.memory(), received}, reader.request_ids())) {
        break;
      }
    }
  } catch (const RemoteError& error) {
    report(service_, (error.what() + ("\n" + error.traceback_text)).c_str());
  } catch (const std::exception& error) {
    // An end of stream that close() caused is not reported.
    if (!closing_) {
      report(service_, error.what());
    }
  }
  return reader.left_unread();
}

bool Connection::answer(const Interpreter::Message& message, const RequestIds& ids) {
  if (AnsweredRequests::of_process().repeats(ids, std::exchange(answered_, {}))) {
    return refuse(ids);
  }
  Interpreter::Answer result;
  int rounds = 0;
  do {
    Lease lease(*this, ids);
    if (!closing_) {
      lease.run([&] { result = answer_in(lease.call(), message); });
    }
    if (closing_) {
      return false;  // nobody waits for the answer
    }
    if (!result.elsewhere) {
      lease.count({ids.size(), !is_success(result.bytes)});
    } else if (++rounds > kMostRounds) {
      throw Error("a service that answers None has its interpreter retired, or serves its model elsewhere");
    }
  } while (result.elsewhere);
  return send(result.bytes, ids) && result.keep_open;
}

bool Connection::send(const std::string& answer, const RequestIds& ids) {
  AnsweredRequests& all_answered = AnsweredRequests::of_process();
  if (is_success(answer)) {
    answered_.assign(ids.begin(), ids.end());
    // Before it is sent: as soon as TorchServe reads it, another worker may get them.
    all_answered.add(answered_);
  }
  const bool sent = send_all(fd_, answer);
  if (!sent) {
    all_answered.remove(std::exchange(answered_, {}));
  }
  return sent;
}

// Its client may have the answer already, and would take another one for that of its next request. TorchServe
// closes a client's connection after an error.
bool Connection::refuse(const RequestIds& ids) {
  std::fprintf(stderr,
               "interpool: %s: TorchServe has sent on what a worker had answered that it stopped; "
               "%zu failed instead of being answered twice\n",
               service_.affinity.c_str(), ids.size());
  return send_all(fd_, failure(kRepeatedCode, kRepeated));
}

Interpreter::Answer Connection::answer_in(WatchedCall& call, const Interpreter::Message& message) {
  if (!call.begin()) {
    return {};  // it was given up, and the interpreter retired
  }
  Interpreter& interpreter = call.interpreter();
  const Entered entered(interpreter);
  void*& service = services_[&interpreter];
  if (service == nullptr) {
    const Held factory(interpreter, interpreter.global(service_.module, service_.function));
    service = interpreter.serve(factory.get(), service_.worker, fd_, load_command_);
  }
  const Interruptible here(interpreter, call.number(), /*shielded=*/true);
  return interpreter.answer(service, message);
}

// On their interpreters' own threads: others may have leased these, or have retired them with the
// GIL held for ever.
void Connection::release_services() {
  for (const auto& [interpreter, service] : services_) {
    if (service != nullptr) {
      reported([interpreter = interpreter, service = service] {
        interpreter->later([interpreter, service] {
          const Entered entered(*interpreter);
          interpreter->release(service);
        });
      });
    }
  }
  services_.clear();
}

Interpreter& Connection::acquire() {
  // What a model has left in an interpreter of its own is its worker's, as in a process.
  while (service_.pinned || pool_->is_isolated(service_.affinity)) {
    if (!home_.has_value()) {
      home_ = pool_->settle(service_.affinity, service_.pinned);
    }
    if (!home_.has_value()) {
      break;  // every interpreter is lost, for now: wait for any
    }
    try {
      return pool_->acquire(service_.affinity, std::nullopt, home_);
    } catch (const InterpreterRetiredError&) {
      pool_->unsettle(*home_);
      home_.reset();
    }
  }
  return pool_->acquire(service_.affinity, std::nullopt);
}

void Connection::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  if (open_) {
    ::shutdown(fd_, SHUT_RDWR);  // wakes the thread; it closes the descriptor
  }
}

std::shared_ptr<WatchedCall> Connection::call() const {
  const std::lock_guard lock(mutex_);
  return call_;
}

std::optional<double> Connection::running() const {
  const auto last = call();
  return last != nullptr ? last->running() : std::nullopt;
}

bool Connection::interrupt() {
  const auto last = call();
  if (last == nullptr || !last->running().has_value()) {
    return false;
  }
  last->interrupt();
  return true;
}

bool Connection::importing() const {
  const auto last = call();
  return last != nullptr && last->importing();
}

std::string Connection::where() const {
  const auto last = call();
  return last != nullptr ? last->where() : "";
}

std::optional<int> Connection::give_up() {
  const auto last = call();
  if (last == nullptr || !last->give_up()) {
    return std::nullopt;
  }
  close();
  pool_->retire(last->interpreter());
  return last->interpreter().id();
}

std::vector<std::string> Connection::requests() const {
  const std::lock_guard lock(mutex_);
  if (requests_ == nullptr) {
    return {};
  }
  return {requests_->begin(), requests_->end()};
}

bool Connection::alive() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

std::string Connection::load_command() const {
  const std::lock_guard lock(mutex_);
  return load_command_;
}

bool Connection::join(double timeout) {
  const auto deadline = after("a timeout", timeout);
  std::unique_lock lock(mutex_);
  return ended_.wait_until(lock, deadline, [this] { return !open_; });
}

}  // namespace interpool
