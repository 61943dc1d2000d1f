#include "interruption.h"

#include <algorithm>
#include <vector>

#include "../seam/guest_modules.h"
#include "python.h"
#include "stacks.h"

namespace interpool {
namespace {

struct Call {
  uint64_t number;
  PyThreadState* thread;
  bool shielded;
  bool wanted = false;  // to be interrupted, and shielded when that was asked for
};

// Under way: as many as threads wait for the GIL, or work while they have released it.
std::vector<Call>& calls() {
  static auto* const under_way = new std::vector<Call>;
  return *under_way;
}

// Takes back an interruption of the calling thread that CPython has not raised yet. A line of Python has it
// raised here, and it is dropped. PyThreadState_SetAsyncExc(id, nullptr) would take it away, too. But up to
// CPython 3.12 every later loop and call would then look for an exception in vain. What the call has raised
// stays pending.
void take_back_interruption() noexcept {
  PyThreadState* const thread = PyThreadState_Get();
  if (thread->async_exc == nullptr) {
    return;
  }
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (const Ref names = steal(PyDict_New()); names) {
    const Ref never = steal(PyRun_String("None", Py_eval_input, names.get(), names.get()));
  }
  PyErr_Restore(type, value, traceback);
  if (thread->async_exc != nullptr) {  // something else stopped that code, such as a signal's handler
    PyThreadState_SetAsyncExc(thread->thread_id, nullptr);
  }
}

// Whether the calling thread's call is shielded from now on. False if an interruption was asked for under
// the shield that goes: the caller raises.
bool shield_call(bool shielded) {
  PyThreadState* const thread = PyThreadState_Get();
  bool wanted = false;
  for (Call& call : calls()) {
    if (call.thread == thread) {
      call.shielded = shielded;
      if (!shielded && call.wanted) {
        call.wanted = false;
        wanted = true;
      }
    }
  }
  if (shielded) {
    take_back_interruption();  // it came too late
  }
  return !wanted;
}

}  // namespace

// Not an Exception: code that continues after any error must not continue after this one.
PyObject* call_interrupted() {
  static PyObject* const type = PyErr_NewExceptionWithDoc(
      guest::kCallInterrupted, "Raised in a call that took longer than it may, or that no caller waits for.",
      PyExc_BaseException, nullptr);
  return type;
}

void begin_interruptible(uint64_t call, bool shielded) {
  calls().push_back({call, PyThreadState_Get(), shielded});
}

PyObject* call_interruptible(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "a function is needed");
    return nullptr;
  }
  if (!shield_call(false)) {
    shield_call(true);  // for what serves the model, which goes on
    PyErr_SetNone(call_interrupted());
    return nullptr;
  }
  PyObject* const result =
      PyObject_Vectorcall(arguments[0], arguments + 1, static_cast<size_t>(count - 1), nullptr);
  shield_call(true);
  return result;
}

void end_interruptible(uint64_t call) noexcept {
  std::erase_if(calls(), [call](const Call& each) { return each.number == call; });
  take_back_interruption();  // one that was not delivered must not hit the thread's next call
}

std::optional<Interpreter::Interruption> interrupt_call(uint64_t call) {
  const WithoutCollector quiet;
  const auto found =
      std::find_if(calls().begin(), calls().end(), [call](const Call& each) { return each.number == call; });
  if (found == calls().end() || call_interrupted() == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  Call& now = *found;
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
