// A visitor's thread is somebody else's: the host's, or one that serves other models, too. Nothing
// is read on the way in: the first change remembers what was there.
#include "thread_attributes.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>
#include <thread>

#include "interpreters.h"

namespace interpool {
namespace {

struct Changes {
  bool inside = false;  // between enter and leave
  bool any = false;
  std::optional<cpu_set_t> affinity;
  std::optional<sigset_t> signals;
  std::optional<int> niceness;
};

thread_local Changes changes;

bool is_this_thread(pid_t thread) {
  return thread == 0 || thread == static_cast<pid_t>(syscall(SYS_gettid));
}

void keep_affinity() {
  cpu_set_t now;
  if (changes.inside && !changes.affinity && sched_getaffinity(0, sizeof now, &now) == 0) {
    changes.affinity = now;
    changes.any = true;
  }
}

void keep_signals() {
  sigset_t now;
  if (changes.inside && !changes.signals && pthread_sigmask(SIG_SETMASK, nullptr, &now) == 0) {
    changes.signals = now;
    changes.any = true;
  }
}

// Whether a thread that became nicer could be made as it was again. Tried on one that nobody needs: what the
// kernel asks for (a capability of its first user namespace, which a container's root need not have, or a
// limit) a process cannot tell by itself.
bool can_go_back(int niceness) {
  bool can = false;
  std::thread([&] {
    setpriority(PRIO_PROCESS, 0, niceness + 1);
    can = setpriority(PRIO_PROCESS, 0, niceness) == 0;
  }).join();
  return can;
}

// Whether the thread may become nicer: only if it can be made as it was again.
bool keep_niceness() {
  if (!changes.inside || changes.niceness) {
    return true;
  }
  const int now = getpriority(PRIO_PROCESS, 0);
  try {
    if (!can_go_back(now)) {
      errno = EPERM;
      return false;
    }
  } catch (const std::system_error&) {  // no more threads
    errno = EAGAIN;
    return false;
  }
  changes.niceness = now;
  changes.any = true;
  return true;
}

}  // namespace

void enter_attributes() noexcept {
  changes.inside = true;
}

void leave_attributes() noexcept {
  changes.inside = false;
  if (!changes.any) {
    return;
  }
  if (changes.affinity) {
    sched_setaffinity(0, sizeof *changes.affinity, &*changes.affinity);
  }
  if (changes.signals) {
    pthread_sigmask(SIG_SETMASK, &*changes.signals, nullptr);
  }
  if (changes.niceness) {
    setpriority(PRIO_PROCESS, 0, *changes.niceness);
  }
  changes = {};
}

}  // namespace interpool

using namespace interpool;

extern "C" {

INTERPOOL_API int ip_sched_setaffinity(pid_t thread, size_t size, const cpu_set_t* cores) {
  if (is_this_thread(thread)) {
    keep_affinity();
  }
  return sched_setaffinity(thread, size, cores);
}

INTERPOOL_API int ip_pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t* cores) {
  if (pthread_equal(thread, pthread_self()) != 0) {
    keep_affinity();
  }
  return pthread_setaffinity_np(thread, size, cores);
}

INTERPOOL_API int ip_pthread_sigmask(int how, const sigset_t* mask, sigset_t* old) {
  if (mask != nullptr) {
    keep_signals();
  }
  return pthread_sigmask(how, mask, old);
}

INTERPOOL_API int ip_nice(int more) {
  return more == 0 || keep_niceness() ? nice(more) : -1;
}

INTERPOOL_API int ip_setpriority(__priority_which_t which, id_t who, int priority) {
  if (which == PRIO_PROCESS && is_this_thread(static_cast<pid_t>(who)) && !keep_niceness()) {
    return -1;
  }
  return setpriority(which, who, priority);
}

}  // extern "C"
