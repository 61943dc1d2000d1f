// SIGCHLD: what private copies install as its handler is each interpreter's own, and all are called.
//
// A signal has one handler in the process. With several event loops (libuv's), only that of the interpreter
// which set its handler last would hear of its children's ends. The others would wait for ever. A handler
// that is called for another's child looks at its own children, finds that none has ended, and returns.
//
// The signal also has one set of flags in the process. Of those that an interpreter gives:
// - SA_NOCLDSTOP: its handler is not called for stopped or continued children. If every interpreter gives
//   it, the kernel sends no signal for them.
// - SA_RESETHAND: its handler is called once.
// - SA_ONSTACK: holds for all handlers if one interpreter gives it. Threads without such a stack ignore it.
// - SA_NOCLDWAIT: refused, as the kernel would drop the exit codes of every other interpreter's children.
// - SA_RESTART: always set, or calls of other interpreters would be interrupted.
// - SA_NODEFER, and a mask: ignored. All signals are blocked meanwhile, as another handler may need that.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>

#include "private_copies.h"

namespace interpool {
namespace {

using Plain = void (*)(int);
using Informed = void (*)(int, siginfo_t*, void*);

// Read by the signal's handler, on any thread, in the middle of anything: atomics only. The host's place is
// that of the handler which was the process's before.
std::array<std::atomic<Plain>, kMaxInterpreters> plain;
std::array<std::atomic<Informed>, kMaxInterpreters> informed;
std::array<std::atomic<int>, kMaxInterpreters> own_flags;
std::atomic<int> places{1};

// The process that the handlers are for; 0 before there is one. A child that has not called exec yet resets
// its parent's handlers one by one, and after vfork it shares its parent's memory.
std::atomic<pid_t> process{0};

// Held while a handler is set; a leaf lock.
std::mutex handlers_mutex;
std::map<InterpreterId, struct sigaction> dispositions;  // what they have set

// Whether no child has ended. If two signals are pending, the kernel delivers one, with the first one's
// information: a child may have ended after another one's stop.
bool tells_of_a_stop_only(const siginfo_t& info) {
  if (info.si_code != CLD_STOPPED && info.si_code != CLD_CONTINUED && info.si_code != CLD_TRAPPED) {
    return false;
  }
  siginfo_t ended{};
  return ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0;
}

template <typename Handler>
Handler taken(std::atomic<Handler>& handler, int own) {
  return (own & SA_RESETHAND) != 0 ? handler.exchange(nullptr, std::memory_order_acq_rel)
                                   : handler.load(std::memory_order_acquire);
}

void call_all(int number, siginfo_t* info, void* context) {
  const int before = errno;
  const bool stop = tells_of_a_stop_only(*info);
  for (int place = 0, end = places.load(std::memory_order_acquire); place < end; ++place) {
    const int own = own_flags[place].load(std::memory_order_acquire);
    if (stop && (own & SA_NOCLDSTOP) != 0) {
      continue;
    }
    if (const Plain handler = taken(plain[place], own)) {
      handler(number);
    }
    if (const Informed handler = taken(informed[place], own)) {
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

bool has_handler(int place) {
  return plain[place].load(std::memory_order_relaxed) != nullptr ||
         informed[place].load(std::memory_order_relaxed) != nullptr;
}

void keep(InterpreterId id, const struct sigaction& action) {
  own_flags[id].store(action.sa_flags, std::memory_order_release);
  const bool with_info = (action.sa_flags & SA_SIGINFO) != 0;
  // The new handler first: one call too many does no harm, a signal without a handler does.
  informed[id].store(with_info ? action.sa_sigaction : nullptr, std::memory_order_release);
  plain[id].store(!with_info && is_function(action) ? action.sa_handler : nullptr, std::memory_order_release);
  if (id >= places.load(std::memory_order_relaxed)) {
    places.store(id + 1, std::memory_order_release);
  }
}

// The process's flags for all handlers that there are.
int flags_for_all() {
  int all = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP;
  for (int place = 0, end = places.load(std::memory_order_relaxed); place < end; ++place) {
    if (has_handler(place)) {
      const int own = own_flags[place].load(std::memory_order_relaxed);
      all |= own & SA_ONSTACK;
      all &= own | ~SA_NOCLDSTOP;
    }
  }
  return all;
}

// As sigaction, for one interpreter.
int set(InterpreterId id, const struct sigaction* action, struct sigaction* old) {
  const std::lock_guard lock(handlers_mutex);
  struct sigaction now{};
  if (::sigaction(SIGCHLD, nullptr, &now) != 0) {
    return -1;
  }
  if (old != nullptr) {
    struct sigaction none{};
    const auto own = dispositions.find(id);
    const bool was_called = own != dispositions.end() && (own->second.sa_flags & SA_RESETHAND) != 0 &&
                            is_function(own->second) && !has_handler(id);
    *old = own != dispositions.end() && !was_called ? own->second : (is_ours(now) ? none : now);
  }
  if (action == nullptr) {
    return 0;
  }
  if ((action->sa_flags & SA_NOCLDWAIT) != 0) {
    errno = EINVAL;
    return -1;
  }
  if (!is_ours(now)) {
    if (!is_function(*action)) {
      return ::sigaction(SIGCHLD, action, nullptr);
    }
    keep(kHost, now);
  }
  try {
    dispositions[id] = *action;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
  keep(id, *action);
  struct sigaction ours{};
  ours.sa_sigaction = &call_all;
  ours.sa_flags = flags_for_all();
  sigfillset(&ours.sa_mask);
  if (::sigaction(SIGCHLD, &ours, nullptr) != 0) {
    return -1;
  }
  process = getpid();
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
