// Process-wide function pointers that every libtorch_python sets for itself.
// The last writer would win for all; here each interpreter keeps its own, and
// what libtorch gets is a function that picks the calling thread's.
#include <ATen/core/interned_strings.h>

#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include "../upstream/torch_symbols.h"
#include "interpreters.h"

namespace interpool {
namespace {

// One pointer per interpreter. Lock-free: its place is written by its own
// interpreter while it imports torch and read by threads that are inside it.
template <typename Pointer>
class Hook {
 public:
  void set(Pointer pointer) noexcept { place(current_interpreter()).store(pointer); }
  Pointer get() const noexcept { return place(current_interpreter()).load(); }

 private:
  std::atomic<Pointer>& place(InterpreterId id) const noexcept {
    return places_[static_cast<size_t>(id + 1)];
  }
  mutable std::array<std::atomic<Pointer>, kMaxInterpreters + 1> places_{};
};

Hook<torch::autograd::EngineStub> engines;
torch::autograd::Engine* first_engine = nullptr;  // what stood before any slot; set once

torch::autograd::Engine& engine_here() {
  if (auto stub = engines.get()) {
    return stub();
  }
  return *first_engine;
}

Hook<torch::jit::PrintHandler> print_handlers;

void print_here(const std::string& text) {
  auto handler = print_handlers.get();
  (handler != nullptr ? handler : torch::jit::getDefaultPrintHandler())(text);
}

using Callstack = std::vector<torch::jit::StackEntry>;
Hook<Callstack (*)()> callstacks;

Callstack callstack_here() {
  auto function = callstacks.get();
  return function != nullptr ? function() : Callstack{};
}

using torch::jit::tracer::warn_fn_type;
Hook<warn_fn_type> tracer_warnings;

void tracer_warn_here(const std::string& text) {
  if (auto function = tracer_warnings.get()) {
    function(text);
  }
}

// prim::PythonOp: TorchScript's call back into Python.
Hook<torch::jit::Operator*> python_ops;

torch::jit::Operation python_op_here(const torch::jit::Node* node) {
  const auto* op = python_ops.get();
  TORCH_CHECK(op != nullptr,
              "interpool: TorchScript calls back into Python on a thread outside any interpreter");
  return op->getOperation(node);
}

}  // namespace
}  // namespace interpool

using namespace interpool;

namespace torch::autograd {

INTERPOOL_API void set_default_engine_stub(EngineStub stub) {
  static std::once_flag once;
  std::call_once(once, [] {
    first_engine = &Engine::get_default_engine();
    torch_symbols.set_engine_stub(engine_here);
  });
  engines.set(stub);
}

}  // namespace torch::autograd

namespace torch::jit {

INTERPOOL_API void setPrintHandler(PrintHandler handler) {
  static std::once_flag once;
  std::call_once(once, [] { torch_symbols.set_print_handler(print_here); });
  print_handlers.set(handler);
}

INTERPOOL_API void registerOperator(Operator&& op) {
  static std::mutex mutex;  // before that of torch's own registry
  static std::set<std::string> known;
  const std::lock_guard lock(mutex);
  const c10::Symbol symbol = c10::Symbol::fromQualString(op.schema().name());
  const bool first = known.insert(c10::toString(op.schema())).second;
  if (symbol == c10::prim::PythonOp) {
    python_ops.set(new Operator(std::move(op)));
    if (first) {
      torch_symbols.register_operator(
          Operator(symbol, python_op_here, c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE));
    }
  } else if (first) {
    torch_symbols.register_operator(std::move(op));
  }
}

namespace tracer {

INTERPOOL_API void setPythonCallstack(std::vector<StackEntry> (*function)()) {
  static std::once_flag once;
  std::call_once(once, [] { torch_symbols.set_python_callstack(callstack_here); });
  callstacks.set(function);
}

INTERPOOL_API void setWarn(warn_fn_type function) {
  static std::once_flag once;
  std::call_once(once, [] { torch_symbols.set_tracer_warn(tracer_warn_here); });
  tracer_warnings.set(function);
}

}  // namespace tracer
}  // namespace torch::jit
