// The process's one PyInterpreter. It routes each call to the interpreter that owns the object or, if there
// is no object, to the calling thread's interpreter.
//
// c10 keeps a single global PyInterpreter. With several interpreters that single one would release an object
// under a GIL that does not protect it. So the router looks the owner up from the object itself. That needs
// no GIL, and is right on threads that belong to no interpreter at all.
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/core/impl/PyObjectSlot.h>
#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <mutex>

#include "../upstream/torch_symbols.h"
#include "../upstream/torch_words.h"
#include "autograd_engines.h"
#include "entered.h"
#include "environment.h"
#include "got_patching.h"
#include "host_library.h"
#include "interpreters.h"
#include "kernels.h"
#include "settings.h"

namespace interpool {
namespace {

using c10::TensorImpl;
using c10::impl::PyInterpreter;
using c10::impl::PyInterpreterVTable;
using c10::impl::PyObjectSlot;

class Router final : public PyInterpreterVTable {
 public:
  std::string name() const override { return "interpool"; }

  void incref(PyObject* object) const override {
    if (const Route* owner = live_owner(object)) {
      owner->vtable->incref(object);
    }
  }

  void decref(PyObject* object) const override {
    const Route* owner = live_owner(object);
    if (owner == nullptr) {
      return;
    }
    // The owner's decref takes the owner's GIL. A thread inside another interpreter would do so while holding
    // that one's GIL. Two such threads that release each other's objects would wait for each other for ever.
    const InterpreterId here = interpreter_here();
    if (here == owner->id || here == kNone) {
      owner->vtable->decref(object);
    } else {
      owner->defer_decref(object);
    }
  }

  bool try_incref(const PyObjectSlot& slot) const override {
    PyObject* object = slot.load_pyobj();
    if (object == nullptr) {
      return false;
    }
    const Route* owner = live_owner(object);
    return owner != nullptr && owner->vtable->try_incref(slot);
  }

  size_t refcnt(PyObject* object) const override {
    const Route* owner = live_owner(object);
    return owner == nullptr ? 0 : owner->vtable->refcnt(object);
  }

  c10::intrusive_ptr<TensorImpl> detach(const TensorImpl* self) const override {
    return of(self).detach(self);
  }
  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    here().dispatch(op, stack);
  }
  void reportErrorCallback(PyObject* callback, c10::DispatchKey key) const override {
    // Kept once per operator, by the interpreter that came last: another one's callback
    // could not run here.
    const Route* owner = live_owner(callback);
    if (owner != nullptr && owner->id == interpreter_here()) {
      owner->vtable->reportErrorCallback(callback, key);
    }
  }
  void python_op_registration_trampoline(const c10::OperatorHandle& op, c10::DispatchKey key,
                                         c10::DispatchKeySet keyset, torch::jit::Stack* stack,
                                         bool with_keyset, bool with_op) const override {
    here().python_op_registration_trampoline(op, key, keyset, stack, with_keyset, with_op);
  }
  void throw_abstract_impl_not_imported_error(std::string opname, const char* pymodule,
                                              const char* context) const override {
    here().throw_abstract_impl_not_imported_error(std::move(opname), pymodule, context);
  }
  void python_dispatcher(const c10::OperatorHandle& op, c10::DispatchKeySet keyset,
                         torch::jit::Stack* stack) const override {
    here().python_dispatcher(op, keyset, stack);
  }

  bool is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return of(self).is_contiguous(self, format);
  }
  c10::SymBool sym_is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return of(self).sym_is_contiguous(self, format);
  }
  bool is_strides_like(const TensorImpl* self, at::MemoryFormat format) const override {
    return of(self).is_strides_like(self, format);
  }
  bool is_non_overlapping_and_dense(const TensorImpl* self) const override {
    return of(self).is_non_overlapping_and_dense(self);
  }
  c10::Device device(const TensorImpl* self) const override { return of(self).device(self); }
  int64_t dim(const TensorImpl* self) const override { return of(self).dim(self); }
  c10::IntArrayRef strides(const TensorImpl* self) const override { return of(self).strides(self); }
  c10::IntArrayRef sizes(const TensorImpl* self) const override { return of(self).sizes(self); }
  c10::SymIntArrayRef sym_sizes(const TensorImpl* self) const override { return of(self).sym_sizes(self); }
  c10::Layout layout(const TensorImpl* self) const override { return of(self).layout(self); }
  int64_t numel(const TensorImpl* self) const override { return of(self).numel(self); }
  c10::SymInt sym_numel(const TensorImpl* self) const override { return of(self).sym_numel(self); }
  c10::SymIntArrayRef sym_strides(const TensorImpl* self) const override {
    return of(self).sym_strides(self);
  }
  c10::SymInt sym_storage_offset(const TensorImpl* self) const override {
    return of(self).sym_storage_offset(self);
  }

  void trace_gpu_event_creation(c10::DeviceType type, uintptr_t event) const override {
    here().trace_gpu_event_creation(type, event);
  }
  void trace_gpu_event_deletion(c10::DeviceType type, uintptr_t event) const override {
    here().trace_gpu_event_deletion(type, event);
  }
  void trace_gpu_event_record(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    here().trace_gpu_event_record(type, event, stream);
  }
  void trace_gpu_event_wait(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    here().trace_gpu_event_wait(type, event, stream);
  }
  void trace_gpu_memory_allocation(c10::DeviceType type, uintptr_t pointer) const override {
    here().trace_gpu_memory_allocation(type, pointer);
  }
  void trace_gpu_memory_deallocation(c10::DeviceType type, uintptr_t pointer) const override {
    here().trace_gpu_memory_deallocation(type, pointer);
  }
  void trace_gpu_stream_creation(c10::DeviceType type, uintptr_t stream) const override {
    here().trace_gpu_stream_creation(type, stream);
  }
  void trace_gpu_device_synchronization(c10::DeviceType type) const override {
    here().trace_gpu_device_synchronization(type);
  }
  void trace_gpu_stream_synchronization(c10::DeviceType type, uintptr_t stream) const override {
    here().trace_gpu_stream_synchronization(type, stream);
  }
  void trace_gpu_event_synchronization(c10::DeviceType type, uintptr_t event) const override {
    here().trace_gpu_event_synchronization(type, event);
  }
  void reset_backward_hooks(const TensorImpl* self) const override { of(self).reset_backward_hooks(self); }

 private:
  static const Route* live_owner(const PyObject* object) noexcept {
    if (object == nullptr) {
      return nullptr;
    }
    const Route* owner = owner_of(object);
    return owner != nullptr && owner->vtable != nullptr ? owner : nullptr;
  }

  static const PyInterpreterVTable& here() {
    const Route* route = route_of(interpreter_here());
    TORCH_CHECK(route != nullptr && route->vtable != nullptr,
                "interpool: a thread that belongs to no interpreter reached Python code of torch. "
                "Start such threads from Python, or enter an interpreter first.");
    return *route->vtable;
  }

  static const PyInterpreterVTable& of(const TensorImpl* self) {
    const PyObject* object = self->pyobj_slot()->load_pyobj();
    const Route* owner = live_owner(object);
    return owner != nullptr ? *owner->vtable : here();
  }
};

// Leaked: tensors may be released by static destructors, after ours would run.
const Router* the_router() {
  static const Router* const router = new Router;
  return router;
}

// What c10 finds under kPyInterpreterHooks.
class RouterHooks final : public c10::impl::PyInterpreterHooksInterface {
 public:
  PyInterpreter* getPyInterpreter() const override {
    static auto* const interpreter = new PyInterpreter(the_router());
    return interpreter;
  }
};

}  // namespace

void install_router() {
  static std::once_flag once;
  std::call_once(once, [] {
    resolve_torch_symbols();
    install_settings();
    guard_environment();
    own_environment();
    auto* registry = torch_symbols.hooks_registry();
    // A host that imported torch registered its own hooks already; adopt_torch
    // then swaps the vtable of its PyInterpreter, which c10 may hold on to.
    if (!registry->Has(kPyInterpreterHooks)) {
      registry->Register(kPyInterpreterHooks, [] { return std::make_unique<RouterHooks>(); });
    }
    // Extensions on torch's stable ABI reach torch::Library through C functions of
    // libtorch_cpu's, whose own calls are bound to each other.
    void* libtorch = dlopen(kTorchCpu, RTLD_NOW | RTLD_NOLOAD);
    TORCH_CHECK(libtorch != nullptr, "interpool: ", kTorchCpu, " is not loaded");
    patch_got_to_interposer(libtorch, [](std::string_view name) {
      return name.find(kLibraryMembers) != name.npos || name == mangled::kernel_of_stub;
    });
    patch_host_registration(libtorch);
    patch_engine_start(libtorch);
    dlclose(libtorch);
  });
}

void adopt_torch(InterpreterId id, PyInterpreter* interpreter, void* libtorch_python) {
  const Route* before = route_of(id);
  TORCH_CHECK(before != nullptr, "interpool: interpreter ", id, " was never announced");
  if (interpreter->vtable_ == the_router()) {
    return;
  }
  if (id == kHost) {
    // The stock library was bound to libtorch directly, when there was no pool.
    patch_got_to_interposer(libtorch_python);
    claim_host_kernels();
  }
  Route route = *before;
  route.vtable = interpreter->vtable_;
  add_route(route);
  interpreter->vtable_ = the_router();
}

}  // namespace interpool

namespace c10::impl {

// Each private libtorch_python registers its hooks from a static initialiser, and c10 ends the process when a
// key comes twice. Private copies are bound to this definition and get a registry of their own, which no code
// reads. The router hears of each interpreter by adopt_torch instead. One is leaked per copy.
INTERPOOL_API decltype(PyInterpreterHooksRegistry()) PyInterpreterHooksRegistry() {
  return new std::remove_pointer_t<decltype(PyInterpreterHooksRegistry())>();
}

}  // namespace c10::impl
