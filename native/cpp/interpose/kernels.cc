#include "kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <typeinfo>
#include <vector>

#include "../upstream/torch_layouts.h"
#include "../upstream/torch_words.h"
#include "registration.h"

namespace interpool {
namespace {

using Kernel = std::shared_ptr<c10::KernelFunction>;

// One (operator, dispatch key). Owned by `cells`, for ever: the dispatcher holds
// its multiplexer. `kernels` is copied on write under the lock and read without a
// lock, because it is read at each call.
struct Cell {
  size_t number = 0;
  std::string what;
  std::atomic<std::shared_ptr<const std::map<InterpreterId, Kernel>>> kernels;
  std::map<InterpreterId, std::vector<Kernel>> registered;  // oldest first; under the lock
  std::optional<c10::SafeKernelFunction> base;
  bool passes = false;  // without a kernel, the operator goes on with its next key
  std::optional<c10::RegistrationHandleRAII> registration;
};

class Multiplexer final : public c10::OperatorKernel {
 public:
  explicit Multiplexer(Cell& cell) : cell_(cell) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    const InterpreterId id = current_interpreter();
    Kernel kernel = own(id);  // keeps it alive should the call unregister it
    if (!kernel && register_deferred(id)) {
      kernel = own(id);
    }
    if (kernel) {
      kernel->callBoxed(op, keys, stack);
      return;
    }
    if (cell_.base.has_value()) {
      // The host's own Python kernel stays the host's.
      const bool python = is_python_kernel(kernel_of(*cell_.base));
      if (!python || id == kHost) {
        cell_.base->callBoxed(op, keys, stack);
        return;
      }
    }
    if (cell_.passes) {
      const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, keys.highestPriorityTypeId());
      op.redispatchBoxed(keys & below, stack);
      return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "interpool: ", cell_.what,
        " is a Python kernel that other interpreters of this process registered, and interpreter ", id,
        " did not. A Python kernel runs only in the interpreter that registered it: import the "
        "module that registers it in this interpreter, too.");
  }

 private:
  Kernel own(InterpreterId id) const {
    const auto kernels = cell_.kernels.load(std::memory_order_acquire);
    const auto found = kernels->find(id);
    return found != kernels->end() ? found->second : nullptr;
  }

  // What a lean import of torch left out may be the kernel that is missing.
  static bool register_deferred(InterpreterId id) {
    const Route* route = route_of(id);
    return route != nullptr && route->register_deferred != nullptr && route->register_deferred();
  }

  Cell& cell_;
};

using CellKey = std::pair<c10::OperatorName, int>;
struct CellLess {
  bool operator()(const CellKey& a, const CellKey& b) const {
    return std::tie(a.first.name, a.first.overload_name, a.second) <
           std::tie(b.first.name, b.first.overload_name, b.second);
  }
};

std::map<CellKey, std::unique_ptr<Cell>, CellLess>& cells() {
  static auto* const all = new std::map<CellKey, std::unique_ptr<Cell>, CellLess>;
  return *all;
}

class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

std::optional<c10::SafeKernelFunction> kernel_before(const c10::OperatorName& name,
                                                     std::optional<c10::DispatchKey> key) {
  const auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op.has_value()) {
    return std::nullopt;
  }
  const c10::DispatchKey wanted = key.value_or(c10::DispatchKey::CompositeImplicitAutograd);
  if (!c10::isAliasDispatchKey(wanted)) {
    return op->hasComputedKernelForDispatchKey(wanted)
               ? std::optional(op->getComputedKernelForDispatchKey(wanted))
               : std::nullopt;
  }
  // Of one that stands for several keys there is what was registered for it itself.
  if (!op->hasKernelForDispatchKey(wanted)) {
    return std::nullopt;
  }
  return c10::SafeKernelFunction(&entry_of(*op).kernelForDispatchKey(wanted), op->debug(),
                                 std::make_shared<c10::OperatorHandle>(*op));
}

void replace(Cell& cell, InterpreterId id, Kernel kernel) {
  const auto before = cell.kernels.load(std::memory_order_relaxed);
  auto after = std::make_shared<std::map<InterpreterId, Kernel>>(*before);
  if (kernel) {
    (*after)[id] = std::move(kernel);
  } else {
    after->erase(id);
  }
  cell.kernels.store(std::move(after), std::memory_order_release);
}

// The cell; a new one has these kernels before any thread can call it. Under the registration lock.
Cell& cell_of(const c10::OperatorName& op, std::optional<c10::DispatchKey> key,
              std::map<InterpreterId, Kernel> first) {
  auto& cell = cells()[{op, key.has_value() ? static_cast<int>(*key) : -1}];
  if (!cell) {
    auto fresh = std::make_unique<Cell>();
    fresh->number = cells().size();
    fresh->what =
        c10::toString(op) + (key.has_value() ? std::string(" for ") + c10::toString(*key) : std::string());
    fresh->base = kernel_before(op, key);
    // Without a kernel for autograd, an operator goes on with what is below; other keys say so themselves.
    const bool native = fresh->base.has_value() && !is_python_kernel(kernel_of(*fresh->base));
    fresh->passes = native ? kernel_of(*fresh->base).isFallthrough() : key == c10::DispatchKey::Autograd;
    if (native && fresh->passes) {
      fresh->base.reset();
    }
    fresh->kernels.store(std::make_shared<const std::map<InterpreterId, Kernel>>(std::move(first)));
    // torch warns of the override, which is the point here.
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    fresh->registration = c10::Dispatcher::singleton().registerImpl(
        op, key, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Multiplexer>(*fresh)),
        std::nullopt, nullptr, "interpool: one Python kernel per interpreter");
    cell = std::move(fresh);
  }
  return *cell;
}

}  // namespace

bool is_python_kernel(const c10::KernelFunction& kernel) {
  const auto& functor = functor_of(kernel);
  return functor && std::strstr(typeid(*functor).name(), kPythonKernelClass) != nullptr;
}

c10::RegistrationHandleRAII add_python_kernel(const c10::OperatorName& op,
                                              std::optional<c10::DispatchKey> key, InterpreterId id,
                                              c10::KernelFunction kernel) {
  auto shared = std::make_shared<c10::KernelFunction>(std::move(kernel));
  const std::lock_guard lock(registration_mutex());
  Cell& cell = cell_of(op, key, {{id, shared}});
  cell.registered[id].push_back(shared);
  replace(cell, id, shared);
  return c10::RegistrationHandleRAII([&cell, id, shared] {
    const std::lock_guard again(registration_mutex());
    // What the same interpreter has registered later stays; else what it has registered before is back.
    std::vector<Kernel>& mine = cell.registered[id];
    std::erase(mine, shared);
    replace(cell, id, mine.empty() ? nullptr : mine.back());
  });
}

std::vector<std::pair<c10::OperatorName, std::optional<c10::DispatchKey>>> python_kernels_of(
    InterpreterId id) {
  const std::lock_guard lock(registration_mutex());
  std::map<size_t, CellKey> found;
  for (const auto& [key, cell] : cells()) {
    if (cell->kernels.load()->count(id) != 0) {
      found.emplace(cell->number, key);
    }
  }
  std::vector<std::pair<c10::OperatorName, std::optional<c10::DispatchKey>>> kernels;
  for (auto& [number, key] : found) {
    kernels.emplace_back(
        std::move(key.first),
        key.second < 0 ? std::nullopt : std::optional(static_cast<c10::DispatchKey>(key.second)));
  }
  return kernels;
}

void expect_python_kernel(const c10::OperatorName& op, std::optional<c10::DispatchKey> key) {
  const std::lock_guard lock(registration_mutex());
  cell_of(op, key, {});
}

void claim_host_kernels() {
  auto& dispatcher = c10::Dispatcher::singleton();
  const std::lock_guard lock(registration_mutex());
  for (auto number = static_cast<uint16_t>(c10::DispatchKey::Undefined) + 1;
       number <= static_cast<uint16_t>(c10::DispatchKey::EndOfAliasKeys); ++number) {
    const auto key = static_cast<c10::DispatchKey>(number);
    for (const c10::OperatorName& name : dispatcher.getAllOpNamesForDispatchKey(key)) {
      const auto op = dispatcher.findOp(name);
      if (!op.has_value()) {
        continue;
      }
      const c10::KernelFunction& kernel = entry_of(*op).kernelForDispatchKey(key);
      if (is_python_kernel(kernel)) {
        // Held for ever: the host unregisters what it registered itself, not this.
        new c10::RegistrationHandleRAII(add_python_kernel(name, key, kHost, c10::KernelFunction(kernel)));
      }
    }
  }
}

}  // namespace interpool
