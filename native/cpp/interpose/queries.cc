// What private copies ask about an operator's kernels, under the registration
// lock: another interpreter may be registering one.
#include <ATen/core/dispatch/OperatorEntry.h>

#include <string>

#include "interpreters.h"
#include "original.h"
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

using interpool::original;

INTERPOOL_API bool OperatorEntry::hasKernelForDispatchKey(DispatchKey key) const {
  static const auto forward = original<bool (*)(const OperatorEntry*, DispatchKey)>(
      "_ZNK3c104impl13OperatorEntry23hasKernelForDispatchKeyENS_11DispatchKeyE");
  return interpool::locked(forward, this, key);
}

INTERPOOL_API bool OperatorEntry::hasKernelForAnyDispatchKey(DispatchKeySet keys) const {
  static const auto forward = original<bool (*)(const OperatorEntry*, DispatchKeySet)>(
      "_ZNK3c104impl13OperatorEntry26hasKernelForAnyDispatchKeyENS_14DispatchKeySetE");
  return interpool::locked(forward, this, keys);
}

INTERPOOL_API bool OperatorEntry::hasComputedKernelForDispatchKey(DispatchKey key) const {
  static const auto forward = original<bool (*)(const OperatorEntry*, DispatchKey)>(
      "_ZNK3c104impl13OperatorEntry31hasComputedKernelForDispatchKeyENS_11DispatchKeyE");
  return interpool::locked(forward, this, key);
}

INTERPOOL_API SafeKernelFunction OperatorEntry::getComputedKernelForDispatchKey(DispatchKey key) const {
  static const auto forward = original<SafeKernelFunction (*)(const OperatorEntry*, DispatchKey)>(
      "_ZNK3c104impl13OperatorEntry31getComputedKernelForDispatchKeyENS_11DispatchKeyE");
  return interpool::locked(forward, this, key);
}

INTERPOOL_API const KernelFunction& OperatorEntry::kernelForDispatchKey(DispatchKey key) const {
  static const auto forward = original<const KernelFunction& (*)(const OperatorEntry*, DispatchKey)>(
      "_ZNK3c104impl13OperatorEntry20kernelForDispatchKeyENS_11DispatchKeyE");
  return interpool::locked(forward, this, key);
}

INTERPOOL_API std::string OperatorEntry::dumpState() const {
  static const auto forward =
      original<std::string (*)(const OperatorEntry*)>("_ZNK3c104impl13OperatorEntry9dumpStateB5cxx11Ev");
  const std::lock_guard lock(interpool::registration_mutex());
  return forward(this);
}

INTERPOOL_API std::string OperatorEntry::dumpComputedTable() const {
  static const auto forward = original<std::string (*)(const OperatorEntry*)>(
      "_ZNK3c104impl13OperatorEntry17dumpComputedTableB5cxx11Ev");
  const std::lock_guard lock(interpool::registration_mutex());
  return forward(this);
}

}  // namespace c10::impl
