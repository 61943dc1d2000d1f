// SIGCHLD: what private copies install as its handler is each interpreter's own, and all are called.
//
// A signal has one handler in the process. Of several event loops (libuv's) only that of the interpreter
// which set its handler last would hear of its children's ends, and the others would wait for ever. A handler
// that is called for another's child looks at its own children, finds that none has ended, and returns.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>

#include "private_copies.h"

namespace interpool {
namespace {

using Plain = void (*)(int);
using Informed = void (*)(int, siginfo_t*, void*);

// Read by the signal's handler, on any thread, in the middle of anything: atomics only. The host's place is
// that of the handler which was the process's before.
std::array<std::atomic<Plain>, kMaxInterpreters> plain;
std::array<std::atomic<Informed>, kMaxInterpreters> informed;
std::atomic<int> places{1};

// The process that all this holds for, once there is a handler. A child that has not called exec yet gives up
// its parent's handlers one by one, and may share its parent's memory (vfork).
std::atomic<pid_t> process{0};

// A leaf lock, for those who set handlers.
std::mutex mutex;
std::map<InterpreterId, struct sigaction> dispositions;  // what they have set

void call_all(int number, siginfo_t* info, void* context) {
  const int before = errno;
  for (int place = 0, end = places.load(std::memory_order_acquire); place < end; ++place) {
    if (const Plain handler = plain[place].load(std::memory_order_acquire)) {
      handler(number);
    }
    if (const Informed handler = informed[place].load(std::memory_order_acquire)) {
      handler(number, info, context);
    }
  }
  errno = before;
}

bool is_function(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &call_all;
}

void keep(InterpreterId id, const struct sigaction& action) {
  const bool with_info = (action.sa_flags & SA_SIGINFO) != 0;
  // One more call does no harm, and a signal that nobody hears does: first the new one.
  informed[id].store(with_info ? action.sa_sigaction : nullptr, std::memory_order_release);
  plain[id].store(!with_info && is_function(action) ? action.sa_handler : nullptr, std::memory_order_release);
  if (id >= places.load(std::memory_order_relaxed)) {
    places.store(id + 1, std::memory_order_release);
  }
}

// As sigaction, for one interpreter.
int set(InterpreterId id, const struct sigaction* action, struct sigaction* old) {
  const std::lock_guard lock(mutex);
  struct sigaction now{};
  if (::sigaction(SIGCHLD, nullptr, &now) != 0) {
    return -1;
  }
  if (old != nullptr) {
    struct sigaction none{};
    const auto own = dispositions.find(id);
    *old = own != dispositions.end() ? own->second : (is_ours(now) ? none : now);
  }
  if (action == nullptr) {
    return 0;
  }
  if (!is_ours(now)) {
    if (!is_function(*action)) {
      return ::sigaction(SIGCHLD, action, nullptr);
    }
    keep(kHost, now);
    struct sigaction ours{};
    ours.sa_sigaction = &call_all;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    sigfillset(&ours.sa_mask);
    if (::sigaction(SIGCHLD, &ours, nullptr) != 0) {
      return -1;
    }
    process = getpid();
  }
  keep(id, *action);
  dispositions[id] = *action;
  return 0;
}

// Whose handler is set; kHost: the process's.
InterpreterId owner(int number, const void* caller) {
  const pid_t here = process.load(std::memory_order_relaxed);
  return number != SIGCHLD || (here != 0 && here != getpid()) ? kHost : owner_of_code(caller);
}

}  // namespace
}  // namespace interpool

using namespace interpool;

extern "C" {

// By any thread, as sigaction itself; but, for SIGCHLD, not in a signal's handler.
INTERPOOL_API int ip_sigaction(int number, const struct sigaction* action, struct sigaction* old) {
  const InterpreterId id = owner(number, __builtin_return_address(0));
  return id > kHost ? set(id, action, old) : ::sigaction(number, action, old);
}

INTERPOOL_API void (*ip_signal(int number, void (*handler)(int)))(int) {
  const InterpreterId id = owner(number, __builtin_return_address(0));
  if (id <= kHost) {
    return ::signal(number, handler);
  }
  struct sigaction action{};
  struct sigaction old{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  return set(id, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

}  // extern "C"
