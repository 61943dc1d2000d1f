// Each interpreter's Python face of an operator.
#include "../upstream/torch_symbols.h"
#include "interpreters.h"

namespace interpool {
namespace {

PyObject* torch_api_function(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const Route* route = route_of(current_interpreter());
  TORCH_CHECK(route != nullptr, "interpool: operator ", c10::toString(name),
              " is wanted in Python on a thread that belongs to no interpreter");
  // Not cached: an operator may be removed and defined again, and its Python
  // object, which torch.ops alone keeps alive, goes with it.
  const auto split = name.name.find("::");
  return route->python_op(name.name.substr(0, split).c_str(), name.name.substr(split + 2).c_str(),
                          name.overload_name.c_str());
}

}  // namespace
}  // namespace interpool

// torch::detail::getTorchApiFunction, which libtorch_python defines for itself with
// one cached PyObject per operator for the whole process. Same ABI: the py::handle
// that it returns is one pointer. Called with the current interpreter's GIL held.
extern "C" INTERPOOL_API PyObject* interpool_torch_api_function(const c10::OperatorHandle& op) asm(
    INTERPOOL_TORCH_API_FUNCTION);

PyObject* interpool_torch_api_function(const c10::OperatorHandle& op) {
  return interpool::torch_api_function(op);
}
