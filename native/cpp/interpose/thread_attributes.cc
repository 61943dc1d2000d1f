// A thread that visits an interpreter belongs to the host, or serves other models, too. Nothing is read
// when it enters: the first change remembers what was there.
#include "thread_attributes.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "interpreters.h"

namespace interpool {
namespace {

struct Changes {
  bool inside = false;  // between enter and leave
  bool any = false;
  std::optional<cpu_set_t> affinity;
  std::optional<sigset_t> signals;
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

}  // extern "C"
