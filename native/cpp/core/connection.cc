#include "connection.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "../seam/reported.h"
#include "../seam/thread.h"
#include "deadline.h"
#include "model_thread.h"
#include "otf_frames.h"

namespace interpool {
namespace {

// So that a call which was given up, and computes for ever, takes no time from those that serve.
void leave_spare_time_to(int thread) {
  const sched_param none{};
  static_cast<void>(sched_setscheduler(thread, SCHED_IDLE, &none));
}

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

// An interpreter while a message is answered, which is given back before the answer is written.
class Connection::Lease {
 public:
  Lease(Connection& connection, Interpreter& interpreter, const RequestIds& requests)
      : connection_(connection), interpreter_(interpreter) {
    const std::lock_guard lock(connection_.mutex_);
    connection_.running_ = Running{&interpreter, new_call_number(), Clock::now(), 0, &requests};
    call_ = connection_.running_->call;
    connection_.where_.clear();
  }
  ~Lease() {
    {
      const std::lock_guard lock(connection_.mutex_);
      if (!connection_.running_.has_value()) {
        return;  // it was given up
      }
      connection_.running_.reset();
    }
    connection_.pool_->release(interpreter_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Interpreter& interpreter() const { return interpreter_; }
  uint64_t call() const { return call_; }
  // Whether the call goes on; it may have been given up already.
  bool is_on(int thread) const {
    const std::lock_guard lock(connection_.mutex_);
    if (connection_.running_.has_value()) {
      connection_.running_->thread = thread;
    }
    return connection_.running_.has_value();
  }

 private:
  Connection& connection_;
  Interpreter& interpreter_;
  uint64_t call_ = 0;
};

void Connection::run() {
  // Each step by itself: where one fails, as there is no memory, the others are still done.
  bool left_unread = false;
  reported([&] { left_unread = answer_all(); });
  reported([&] {
    if (left_unread) {
      AnsweredRequests::of_process().remove(answered_);
    } else {
      AnsweredRequests::of_process().leave(std::move(answered_));
    }
  });
  if (home_.has_value()) {
    reported([&] { pool_->leave(*home_); });
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
  AnsweredRequests& all_answered = AnsweredRequests::of_process();
  FrameReader reader(fd_);
  try {
    while (const auto frame = reader.next()) {
      all_answered.remove(std::exchange(answered_, {}));
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
    if (!is_closing()) {
      report(service_, error.what());
    }
  }
  return reader.left_unread();
}

bool Connection::answer(const Interpreter::Message& message, const RequestIds& ids) {
  if (AnsweredRequests::of_process().repeats(ids)) {
    return refuse(ids);
  }
  Interpreter::Answer result;
  int rounds = 0;
  do {
    const Lease lease(*this, this->lease(), ids);
    Interpreter& interpreter = lease.interpreter();
    if (is_closing()) {
      return false;  // nobody waits for the answer
    }
    if (service_.pinned) {
      static_cast<void>(lease.is_on(static_cast<int>(syscall(SYS_gettid))));
      result = answer_in(lease, message);
    } else {
      const auto thread = ModelThread::of(interpreter, service_.affinity);
      if (!lease.is_on(thread->number())) {
        // Its interpreter may have been retired before it had this thread.
        ModelThread::forget(interpreter, service_.affinity);
        return false;
      }
      thread->run([&] { result = answer_in(lease, message); });
    }
    if (result.elsewhere && ++rounds > kMostRounds) {
      throw Error("a service that answers None has its interpreter retired, or serves its model elsewhere");
    }
  } while (result.elsewhere);
  return send(result.bytes, ids) && result.keep_open;
}

bool Connection::send(const std::string& answer, const RequestIds& ids) {
  AnsweredRequests& all_answered = AnsweredRequests::of_process();
  const bool success = is_success(answer);
  if (!ids.empty()) {
    pool_->count_requests(service_.affinity, ids.size(), !success);
  }
  if (success) {
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

Interpreter::Answer Connection::answer_in(const Lease& lease, const Interpreter::Message& message) {
  Interpreter& interpreter = lease.interpreter();
  const Entered entered(interpreter);
  void*& service = services_[&interpreter];
  if (service == nullptr) {
    const Held factory(interpreter, interpreter.global(service_.module, service_.function));
    service = interpreter.serve(factory.get(), service_.worker, fd_, load_command_);
  }
  const Interruptible here(interpreter, lease.call(), /*shielded=*/true);
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

Interpreter& Connection::lease() {
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
      pool_->leave(*home_);
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

bool Connection::is_closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

std::optional<double> Connection::running() const {
  const std::lock_guard lock(mutex_);
  return running_.has_value() ? std::optional(in_seconds(Clock::now() - running_->since)) : std::nullopt;
}

bool Connection::interrupt() {
  const std::lock_guard lock(mutex_);
  if (!running_.has_value()) {
    return false;
  }
  importing_ = false;
  const auto told = [self = shared_from_this()](Interpreter::Interruption interruption) {
    const std::lock_guard telling(self->mutex_);
    self->where_ = std::move(interruption.where);
    self->importing_ = !interruption.delivered;
  };
  running_->interpreter->interrupt(running_->call, told);
  return true;
}

bool Connection::importing() const {
  const std::lock_guard lock(mutex_);
  return importing_;
}

std::string Connection::where() const {
  const std::lock_guard lock(mutex_);
  return where_;
}

std::optional<int> Connection::give_up() {
  Interpreter* interpreter = nullptr;
  int thread = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!running_.has_value()) {
      return std::nullopt;
    }
    interpreter = running_->interpreter;
    thread = running_->thread;
    running_.reset();  // the thread has no lease any more
    closing_ = true;
    ::shutdown(fd_, SHUT_RDWR);
  }
  if (thread != 0) {  // 0 would be this one
    leave_spare_time_to(thread);
  }
  pool_->retire(*interpreter);
  return interpreter->id();
}

std::vector<std::string> Connection::requests() const {
  const std::lock_guard lock(mutex_);
  if (!running_.has_value()) {
    return {};
  }
  return {running_->requests->begin(), running_->requests->end()};
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
