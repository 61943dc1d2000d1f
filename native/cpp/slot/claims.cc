#include "claims.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "builtin_module.h"
#include "guarded.h"

namespace interpool {
namespace {

std::atomic<bool> retires{false};
std::atomic<bool> claimed{false};  // written with the mutex held
std::mutex claim_mutex;            // guards `claimant`; a leaf lock
std::string claimant;

// retire_interpreter() -> None
//
// This interpreter is not leased again after the lease that it is in.
PyObject* retire_interpreter(PyObject*, PyObject*) {
  retires = true;
  Py_RETURN_NONE;
}

// claim_interpreter(affinity) -> None
//
// After the lease that it is in, only that model leases this interpreter, and that model leases no other one.
PyObject* claim_interpreter(PyObject*, PyObject* affinity) {
  const char* const text = PyUnicode_AsUTF8(affinity);
  if (text == nullptr) {
    return nullptr;
  }
  const std::lock_guard lock(claim_mutex);
  claimant = text;
  claimed = true;
  Py_RETURN_NONE;
}

PyMethodDef claim_methods[] = {
    {"claim_interpreter", guarded<claim_interpreter>, METH_O, "claim_interpreter(affinity) -> None"},
    {"retire_interpreter", guarded<retire_interpreter>, METH_NOARGS, "retire_interpreter() -> None"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyMethodDef* claim_functions() {
  return claim_methods;
}

bool wants_to_retire() {
  return retires;
}

std::optional<std::string> take_claim() {
  if (!claimed) {
    return std::nullopt;
  }
  const std::lock_guard lock(claim_mutex);
  claimed = false;
  return std::exchange(claimant, {});
}

}  // namespace interpool
