// Layouts and private members of torch's types that code depends on. layout_checks.cc holds what
// is assumed here against torch's headers when interpool is built.
#pragma once

#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/version.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

namespace interpool {

// The torch that we are built with, as 100 * major + minor.
inline constexpr int kTorch = 100 * TORCH_VERSION_MAJOR + TORCH_VERSION_MINOR;

// What at::ThreadLocalState keeps of a thread: slot/thread_state.cc looks at all of it. Larger,
// and there is something else to look at there. 2.14 has added NodeCreationHooks.
inline constexpr size_t kThreadLocalStateBytes = kTorch < 214 ? 464 : 496;

// What at::Context keeps of a process: interpose/settings.cc compares its bytes to tell whether a
// model has changed any. Larger, and there is something new in it: may its bytes be compared?
inline constexpr size_t kContextBytes = kTorch < 214 ? 1152 : 1160;

// The members of torch::detail::class_base, in order: interpose/registries.cc stands in for its
// constructor.
struct ClassBase {
  std::string qualified_name;
  at::ClassTypePtr type;
};

// The head of libtorch_python's THPVariable: a tensor's Python face, after CPython's own head.
inline constexpr size_t kTensorOffset = 16;

// The one member of at::impl::ThreadLocalPythonObjects, which does not say whether it is empty.
using PythonObjects = std::unordered_map<std::string, std::shared_ptr<c10::SafePyObject>>;

inline const PythonObjects& python_objects(const at::impl::ThreadLocalPythonObjects& state) {
  static_assert(sizeof(state) == sizeof(PythonObjects));
  return reinterpret_cast<const PythonObjects&>(state);
}

// Members that are private to c10. An explicit instantiation may name those ([temp.spec]/6),
// which is how these read them; the compiler checks their types.
namespace access {

template <typename Tag, typename Tag::type Member>
struct Access {
  friend typename Tag::type member(Tag) { return Member; }
};
struct BoxedOfKernel {
  using type = c10::BoxedKernel c10::KernelFunction::*;
  friend type member(BoxedOfKernel);
};
struct FunctorOfBoxed {
  using type = c10::intrusive_ptr<c10::OperatorKernel> c10::BoxedKernel::*;
  friend type member(FunctorOfBoxed);
};
struct KernelOfSafe {
  using type = c10::KernelFunction c10::SafeKernelFunction::*;
  friend type member(KernelOfSafe);
};
template struct Access<BoxedOfKernel, &c10::KernelFunction::boxed_kernel_func_>;
template struct Access<FunctorOfBoxed, &c10::BoxedKernel::functor_>;
template struct Access<KernelOfSafe, &c10::SafeKernelFunction::kernel_>;

// An operator's entry, whose type is private as well.
struct EntryOfHandle {
  friend const c10::impl::OperatorEntry& entry(EntryOfHandle, const c10::OperatorHandle&);
};
template <typename Tag, auto Member>
struct ReadEntry {
  friend const c10::impl::OperatorEntry& entry(Tag, const c10::OperatorHandle& op) {
    return (op.*Member)->op;
  }
};
template struct ReadEntry<EntryOfHandle, &c10::OperatorHandle::operatorDef_>;

}  // namespace access

// The functor inside a kernel; null for those that have none.
inline const c10::intrusive_ptr<c10::OperatorKernel>& functor_of(const c10::KernelFunction& kernel) {
  return (kernel.*member(access::BoxedOfKernel{})).*member(access::FunctorOfBoxed{});
}

inline const c10::KernelFunction& kernel_of(const c10::SafeKernelFunction& safe) {
  return safe.*member(access::KernelOfSafe{});
}

inline const c10::impl::OperatorEntry& entry_of(const c10::OperatorHandle& op) {
  return entry(access::EntryOfHandle{}, op);
}

}  // namespace interpool
