// Each interpreter's Python face of an operator.
#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <unordered_map>

#include "interpreters.h"

namespace interpool {
namespace {

struct NameHash {
  size_t operator()(const c10::OperatorName& name) const { return std::hash<c10::OperatorName>()(name); }
};
using Cache = std::unordered_map<c10::OperatorName, PyObject*, NameHash>;

PyObject* torch_api_function(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* const caches = new std::unordered_map<InterpreterId, Cache>;
  const InterpreterId id = current_interpreter();
  const c10::OperatorName& name = op.operator_name();
  {
    const std::lock_guard lock(mutex);
    const Cache& cache = (*caches)[id];
    if (const auto known = cache.find(name); known != cache.end()) {
      return known->second;
    }
  }
  const Route* route = route_of(id);
  TORCH_CHECK(route != nullptr, "interpool: operator ", c10::toString(name),
              " is wanted in Python on a thread that belongs to no interpreter");
  const auto split = name.name.find("::");
  PyObject* found = route->python_op(name.name.substr(0, split).c_str(), name.name.substr(split + 2).c_str(),
                                     name.overload_name.c_str());
  const std::lock_guard lock(mutex);
  return (*caches)[id][name] = found;
}

}  // namespace
}  // namespace interpool

// torch::detail::getTorchApiFunction, which libtorch_python defines for itself with
// one cached PyObject per operator for the whole process. Same ABI: the py::handle
// that it returns is one pointer. Called with the current interpreter's GIL held,
// which is never waited for under the lock.
extern "C" INTERPOOL_API PyObject* interpool_torch_api_function(const c10::OperatorHandle& op) asm(
    "_ZN5torch6detail19getTorchApiFunctionERKN3c1014Operator"
    "HandleE");

PyObject* interpool_torch_api_function(const c10::OperatorHandle& op) {
  return interpool::torch_api_function(op);
}
