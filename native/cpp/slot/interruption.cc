#include "interruption.h"

#include <map>

#include "../seam/guest_modules.h"
#include "python.h"
#include "stacks.h"

namespace interpool {
namespace {

struct Call {
  PyThreadState* thread;
  bool shielded;
  bool wanted = false;  // to be interrupted, and shielded when that was asked for
};

std::map<uint64_t, Call>& calls() {
  static auto* const under_way = new std::map<uint64_t, Call>;
  return *under_way;
}

}  // namespace

// Not an Exception: code that continues after any error must not continue after this one.
PyObject* call_interrupted() {
  static PyObject* const type = PyErr_NewExceptionWithDoc(
      guest::kCallInterrupted, "Raised in a call that took longer than it may, or that nobody waits for.",
      PyExc_BaseException, nullptr);
  return type;
}

void begin_interruptible(uint64_t call, bool shielded) {
  calls().emplace(call, Call{PyThreadState_Get(), shielded});
}

bool shield_call(bool shielded) {
  PyThreadState* const thread = PyThreadState_Get();
  for (auto& [number, call] : calls()) {
    if (call.thread == thread) {
      call.shielded = shielded;
      if (shielded) {
        PyThreadState_SetAsyncExc(thread->thread_id, nullptr);  // it came too late
      } else if (call.wanted) {
        call.wanted = false;
        return false;
      }
    }
  }
  return true;
}

void end_interruptible(uint64_t call) noexcept {
  const auto found = calls().find(call);
  // An interruption that was not delivered must not hit the thread's next call.
  PyThreadState_SetAsyncExc(found->second.thread->thread_id, nullptr);
  calls().erase(found);
}

std::optional<Interpreter::Interruption> interrupt_call(uint64_t call) {
  const WithoutCollector quiet;
  const auto found = calls().find(call);
  if (found == calls().end() || call_interrupted() == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  Call& now = found->second;
  Interpreter::Interruption interruption;
  for (const std::string& frame : stack_of(now.thread)) {
    interruption.where += "\n  " + frame;
  }
  if (now.shielded) {
    now.wanted = true;
  } else if (is_importing(now.thread)) {
    interruption.delivered = false;
  } else {
    PyThreadState_SetAsyncExc(now.thread->thread_id, call_interrupted());
  }
  return interruption;
}

}  // namespace interpool
