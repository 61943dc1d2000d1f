#include "connection.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "../seam/thread.h"
#include "otf_frames.h"

namespace interpool {
namespace {

void report(const Service& service, const std::string& what) {
  std::fprintf(stderr, "interpool: connection of %s closed: %s\n", service.affinity.c_str(), what.c_str());
}

}  // namespace

Connection::Connection(std::shared_ptr<Pool> pool, int fd, Service service, int done_fd)
    : pool_(std::move(pool)), fd_(fd), service_(std::move(service)), done_fd_(done_fd) {}

std::shared_ptr<Connection> Connection::serve(std::shared_ptr<Pool> pool, int fd, Service service,
                                              int done_fd) {
  if (service.share.has_value()) {
    pool->set_share(service.affinity, *service.share);
  }
  std::shared_ptr<Connection> connection(new Connection(std::move(pool), fd, std::move(service), done_fd));
  start_model_thread([connection] {
    pthread_setname_np(pthread_self(), "interpool-conn");
    // A working directory of its own, and of the threads that its calls start: as a model finds it
    // in a worker process of its own. Where the system forbids it, the process's stays.
    static_cast<void>(::unshare(CLONE_FS));
    connection->run();
  });
  return connection;
}

void Connection::run() {
  try {
    FrameReader reader(fd_);
    while (const auto frame = reader.next()) {
      if (load_command_.empty()) {
        const std::lock_guard lock(mutex_);
        load_command_ = *frame;
      }
      if (!answer(*frame)) {
        break;
      }
    }
  } catch (const RemoteError& error) {
    report(service_, error.what() + ("\n" + error.traceback_text));
  } catch (const std::exception& error) {
    // An end of stream that close() caused is not reported.
    if (alive()) {
      report(service_, error.what());
    }
  }
  if (home_.has_value()) {
    pool_->leave(*home_);
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

bool Connection::answer(std::string_view frame) {
  // Gives the interpreter back before the answer is written.
  struct Lease {
    Pool& pool;
    Interpreter& interpreter;
    ~Lease() { pool.release(interpreter); }
  };
  Interpreter::Answer result;
  {
    const Lease lease{*pool_, this->lease()};
    const Entered entered(lease.interpreter);
    void*& service = services_[&lease.interpreter];
    if (service == nullptr) {
      const Held factory(lease.interpreter, lease.interpreter.global(service_.module, service_.function));
      service = lease.interpreter.serve(factory.get(), service_.worker, fd_, load_command_);
    }
    result = lease.interpreter.answer(service, frame);
  }
  return send_all(fd_, result.bytes) && result.keep_open;
}

// On their interpreters' own threads: others may have leased these, or have retired them with the
// GIL held for ever.
void Connection::release_services() {
  for (const auto& [interpreter, service] : services_) {
    if (service != nullptr) {
      interpreter->later([interpreter = interpreter, service = service] {
        const Entered entered(*interpreter);
        interpreter->release(service);
      });
    }
  }
  services_.clear();
}

Interpreter& Connection::lease() {
  while (service_.pinned) {
    if (!home_.has_value()) {
      home_ = pool_->settle();
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
  if (open_) {
    ::shutdown(fd_, SHUT_RDWR);  // wakes the thread; it closes the descriptor
  }
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
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, std::chrono::duration<double>(timeout), [this] { return !open_; });
}

}  // namespace interpool
