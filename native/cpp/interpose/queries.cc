// What private copies ask about an operator's kernels, under the registration
// lock: another interpreter may be registering one.
#include <string>

#include "../upstream/torch_symbols.h"
#include "interpreters.h"
#include "registration.h"

namespace interpool {

std::recursive_mutex& registration_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

namespace {

using Entry = c10::impl::OperatorEntry;

template <typename Result, typename Argument>
Result locked(Result (*forward)(const Entry*, Argument), const Entry* self, Argument argument) {
  const std::lock_guard lock(registration_mutex());
  return forward(self, argument);
}

}  // namespace
}  // namespace interpool

namespace c10::impl {

using interpool::torch_symbols;

INTERPOOL_API bool OperatorEntry::hasKernelForDispatchKey(DispatchKey key) const {
  return interpool::locked(torch_symbols.has_kernel, this, key);
}

INTERPOOL_API bool OperatorEntry::hasKernelForAnyDispatchKey(DispatchKeySet keys) const {
  return interpool::locked(torch_symbols.has_kernel_for_any, this, keys);
}

INTERPOOL_API bool OperatorEntry::hasComputedKernelForDispatchKey(DispatchKey key) const {
  return interpool::locked(torch_symbols.has_computed_kernel, this, key);
}

INTERPOOL_API SafeKernelFunction OperatorEntry::getComputedKernelForDispatchKey(DispatchKey key) const {
  return interpool::locked(torch_symbols.computed_kernel, this, key);
}

INTERPOOL_API const KernelFunction& OperatorEntry::kernelForDispatchKey(DispatchKey key) const {
  return interpool::locked(torch_symbols.kernel_for_key, this, key);
}

INTERPOOL_API std::string OperatorEntry::dumpState() const {
  const std::lock_guard lock(interpool::registration_mutex());
  return torch_symbols.dump_state(this);
}

INTERPOOL_API std::string OperatorEntry::dumpComputedTable() const {
  const std::lock_guard lock(interpool::registration_mutex());
  return torch_symbols.dump_computed_table(this);
}

}  // namespace c10::impl
