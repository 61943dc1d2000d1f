#include "interruption.h"

#include <map>

#include "../seam/guest_modules.h"
#include "python.h"
#include "stacks.h"

namespace interpool {
namespace {

std::map<uint64_t, PyThreadState*>& calls() {
  static auto* const under_way = new std::map<uint64_t, PyThreadState*>;
  return *under_way;
}

// Not an Exception: code that continues after any error must not continue after this one.
PyObject* call_interrupted() {
  static PyObject* const type = PyErr_NewExceptionWithDoc(
      guest::kCallInterrupted, "Raised in a call that took longer than its session's time limit.",
      PyExc_BaseException, nullptr);
  return type;
}

}  // namespace

void begin_interruptible(uint64_t call) {
  calls().emplace(call, PyThreadState_Get());
}

void end_interruptible(uint64_t call) noexcept {
  const auto found = calls().find(call);
  // An interruption that was not delivered must not hit the thread's next call.
  PyThreadState_SetAsyncExc(found->second->thread_id, nullptr);
  calls().erase(found);
}

std::optional<Interpreter::Interruption> interrupt_call(uint64_t call) {
  const WithoutCollector quiet;
  const auto found = calls().find(call);
  if (found == calls().end() || call_interrupted() == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  Interpreter::Interruption interruption;
  for (const std::string& frame : stack_of(found->second)) {
    interruption.where += "\n  " + frame;
  }
  interruption.delivered = !is_importing(found->second);
  if (interruption.delivered) {
    PyThreadState_SetAsyncExc(found->second->thread_id, call_interrupted());
  }
  return interruption;
}

}  // namespace interpool
