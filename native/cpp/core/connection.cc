#include "connection.h"

#include <pthread.h>
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

Connection::Connection(std::shared_ptr<Pool> pool, std::shared_ptr<Wire> wire, Service service, int done_fd)
    : pool_(std::move(pool)), wire_(std::move(wire)), service_(std::move(service)), done_fd_(done_fd) {}

std::shared_ptr<Connection> Connection::serve(std::shared_ptr<Pool> pool, std::shared_ptr<Wire> wire,
                                              Service service, int done_fd) {
  try {
    if (service.share.has_value()) {
      pool->set_share(service.affinity, *service.share);
    }
    std::shared_ptr<Connection> connection(
        new Connection(std::move(pool), wire, std::move(service), done_fd));
    wire->offer_to([served = std::weak_ptr(connection)](const Frame& frame) {
      const auto here = served.lock();
      return here != nullptr && here->take(frame);
    });
    start_model_thread(
        [connection] {
          pthread_setname_np(pthread_self(), "interpool-conn");
          connection->run();
        },
        Directory::kOwn);
    return connection;
  } catch (...) {
    wire->close();
    throw;
  }
}

// An interpreter, and the model's thread there, while a message is answered. It is given back before the
// answer is written.
class Connection::Lease {
 public:
  // The caller has leased `interpreter`, which is released here, also if this throws.
  Lease(Connection& connection, const RequestIds& requests, Interpreter& interpreter)
      : connection_(connection), interpreter_(interpreter) {
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
  void post(std::function<void()> work) const { thread_->post(std::move(work)); }

 private:
  Connection& connection_;
  Interpreter& interpreter_;
  std::shared_ptr<ModelThread> thread_;
  std::shared_ptr<WatchedCall> call_;
  Pool::Requests answered_;
};

// A message that was taken from the thread that asks.
struct Connection::Turn {
  Turn(std::shared_ptr<Connection> asked, Frame message)
      : connection(std::move(asked)), frame(std::move(message)) {}

  const std::shared_ptr<Connection> connection;
  Frame frame;
  std::optional<Lease> lease;
};

void Connection::run() {
  // Each step by itself: if one fails for lack of memory, the others are still done.
  reported([&] { answer_all(); });
  wire_->close();
  over_ = true;  // take() may be about to wait for a lease, and looks at it afterwards
  if (pool_->stop_waiting(*this)) {
    taken_.reset();
    end_turn();
  }
  wait_for_turn();
  reported([&] {
    if (wire_->left_unread()) {
      AnsweredRequests::of_process().remove(answered_);
    } else {
      AnsweredRequests::of_process().end(std::move(answered_));
    }
  });
  if (home_.has_value()) {
    reported([&] { pool_->unassign(*home_); });
  }
  release_services();
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  changed_.notify_all();
  const uint64_t one = 1;
  if (::write(done_fd_, &one, sizeof one) != sizeof one) {
    report(service_, "its end could not be reported");
  }
}

void Connection::answer_all() {
  try {
    while (const auto frame = wire_->next()) {
      if (load_command_.empty()) {
        const std::lock_guard lock(mutex_);
        load_command_ = frame->message.bytes;
      }
      if (!answer(*frame)) {
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
}

void Connection::wait_for_turn() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  busy_ = true;
}

void Connection::end_turn() {
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
  changed_.notify_all();
}

bool Connection::answer(const Frame& frame) {
  if (wire_->may_repeat() &&
      AnsweredRequests::of_process().repeats(frame.ids, std::exchange(answered_, {}))) {
    return refuse(frame.ids);
  }
  Interpreter::Answer result = answer_in_turn(frame);
  if (closing_) {
    return false;  // the other side waits for no answer
  }
  return send(std::move(result.bytes), frame.ids) && result.keep_open;
}

Interpreter::Answer Connection::answer_in_turn(const Frame& frame) {
  wait_for_turn();
  const struct EndOfTurn {
    Connection& connection;
    ~EndOfTurn() { connection.end_turn(); }
  } end{*this};
  Interpreter::Answer result;
  int rounds = 0;
  do {
    Lease lease(*this, frame.ids, acquire());
    if (!closing_) {
      lease.run([&] { result = answer_in(lease.call(), frame.message); });
    }
    if (closing_) {
      break;
    }
    if (!result.elsewhere) {
      lease.count({frame.ids.size(), !is_success(result.bytes)});
    } else if (++rounds > kMostRounds) {
      throw Error("a service that answers None has its interpreter retired, or serves its model elsewhere");
    }
  } while (result.elsewhere);
  return result;
}

bool Connection::take(const Frame& frame) {
  if (service_.pinned) {
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || closing_ || load_command_.empty()) {
      return false;
    }
    busy_ = true;
  }
  taken_ = frame;
  bool is_taken = false;
  reported([&] { is_taken = pool_->acquire_for(service_.affinity, shared_from_this()); });
  if (is_taken && over_ && pool_->stop_waiting(*this)) {
    is_taken = false;  // run() looked before this waited
  }
  if (!is_taken) {
    taken_.reset();
    end_turn();
  }
  return is_taken;
}

void Connection::leased(Interpreter* interpreter) noexcept {
  Frame frame = std::move(*taken_);
  taken_.reset();
  const bool is_posted = interpreter != nullptr && reported([&] {
                           std::shared_ptr<Turn> turn;
                           try {
                             turn = std::make_shared<Turn>(shared_from_this(), frame);
                           } catch (...) {
                             pool_->release(*interpreter);
                             throw;
                           }
                           turn->lease.emplace(*this, turn->frame.ids, *interpreter);
                           turn->lease->post([turn] { turn->connection->answer_taken(*turn); });
                         });
  if (!is_posted) {
    end_turn();
    wire_->put_back(std::move(frame));
  }
}

// On the model's thread.
void Connection::answer_taken(Turn& turn) {
  Interpreter::Answer result;
  try {
    if (!closing_) {
      result = answer_in(turn.lease->call(), turn.frame.message);
    }
  } catch (const RemoteError& error) {
    report(service_, (error.what() + ("\n" + error.traceback_text)).c_str());
  } catch (const std::exception& error) {
    report(service_, error.what());
  }
  if (!result.elsewhere && !closing_) {
    turn.lease->count({turn.frame.ids.size(), !is_success(result.bytes)});
  }
  turn.lease.reset();
  end_turn();
  if (result.elsewhere && !closing_) {
    wire_->put_back(std::move(turn.frame));
    return;
  }
  if (!result.bytes.empty() && !closing_) {
    wire_->send(std::move(result.bytes));
  }
  if (!result.keep_open || closing_) {
    wire_->close();
  }
}

bool Connection::send(std::string answer, const RequestIds& ids) {
  if (!wire_->may_repeat()) {
    return wire_->send(std::move(answer));
  }
  AnsweredRequests& all_answered = AnsweredRequests::of_process();
  if (is_success(answer)) {
    answered_.assign(ids.begin(), ids.end());
    // Before it is sent: as soon as TorchServe reads it, another worker may get them.
    all_answered.add(answered_);
  }
  const bool sent = wire_->send(std::move(answer));
  if (!sent) {
    all_answered.remove(std::exchange(answered_, {}));
  }
  return sent;
}

// Its client may have the answer already, and would take another one for that of its next request. TorchServe
// closes a client's connection after an error.
bool Connection::refuse(const RequestIds& ids) {
  std::fprintf(stderr,
               "interpool: %s: TorchServe has repeated requests that a worker had answered before it was "
               "stopped; %zu failed instead of being answered twice\n",
               service_.affinity.c_str(), ids.size());
  return wire_->send(failure(kRepeatedCode, kRepeated));
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
    service = interpreter.serve(factory.get(), service_.worker, load_command_);
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
      home_ = pool_->assign(service_.affinity, service_.pinned);
    }
    if (!home_.has_value()) {
      break;  // every interpreter is lost, for now: wait for any
    }
    try {
      return pool_->acquire(service_.affinity, std::nullopt, home_);
    } catch (const InterpreterRetiredError&) {
      pool_->unassign(*home_);
      home_.reset();
    }
  }
  return pool_->acquire(service_.affinity, std::nullopt, std::nullopt, /*runs_here=*/false);
}

void Connection::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wire_->close();  // wakes the thread
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
  return changed_.wait_until(lock, deadline, [this] { return !open_; });
}

}  // namespace interpool
