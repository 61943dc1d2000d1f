// What one libtorch_python registers with c10, without a Python: counts, and says what it was asked.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyObjectSlot.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "synthetic_objects.h"

namespace interpool::testing {

class TorchPython final : public c10::impl::PyInterpreterVTable {
 public:
  using TensorImpl = c10::TensorImpl;

  // Calls that arrived, other than for references.
  mutable std::atomic<int> asked{0};
  // Threads must not be inside another interpreter when a decref takes this one's GIL.
  bool (*may_take_gil)() = nullptr;
  mutable std::atomic<int> refused{0};

  std::string name() const override { return "synthetic"; }
  void incref(PyObject* object) const override { ++Object::of(object).references; }
  void decref(PyObject* object) const override {
    if (may_take_gil != nullptr && !may_take_gil()) ++refused;
    --Object::of(object).references;
  }
  bool try_incref(const c10::impl::PyObjectSlot& slot) const override {
    auto& references = Object::of(slot.load_pyobj()).references;
    intptr_t now = references.load();
    while (now > 0) {
      if (references.compare_exchange_weak(now, now + 1)) return true;
    }
    return false;
  }
  size_t refcnt(PyObject* object) const override {
    return static_cast<size_t>(Object::of(object).references.load());
  }

  int64_t dim(const TensorImpl*) const override { return note(3); }
  int64_t numel(const TensorImpl*) const override { return note(60); }
  c10::Device device(const TensorImpl*) const override { return note(c10::Device(c10::kMeta)); }
  bool is_contiguous(const TensorImpl*, at::MemoryFormat) const override { return note(true); }
  void reset_backward_hooks(const TensorImpl*) const override { ++asked; }
  void trace_gpu_device_synchronization(c10::DeviceType) const override { ++asked; }
  void reportErrorCallback(PyObject*, c10::DispatchKey) const override { ++asked; }

  // Not asked by these tests.
  c10::intrusive_ptr<TensorImpl> detach(const TensorImpl*) const override { unexpected(); }
  void dispatch(const c10::OperatorHandle&, torch::jit::Stack*) const override { unexpected(); }
  void python_op_registration_trampoline(const c10::OperatorHandle&, c10::DispatchKey, c10::DispatchKeySet,
                                         torch::jit::Stack*, bool, bool) const override {
    unexpected();
  }
  void throw_abstract_impl_not_imported_error(std::string, const char*, const char*) const override {
    unexpected();
  }
  void python_dispatcher(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) const override {
    unexpected();
  }
  c10::SymBool sym_is_contiguous(const TensorImpl*, at::MemoryFormat) const override { unexpected(); }
  bool is_strides_like(const TensorImpl*, at::MemoryFormat) const override { unexpected(); }
  bool is_non_overlapping_and_dense(const TensorImpl*) const override { unexpected(); }
  c10::IntArrayRef strides(const TensorImpl*) const override { unexpected(); }
  c10::IntArrayRef sizes(const TensorImpl*) const override { unexpected(); }
  c10::SymIntArrayRef sym_sizes(const TensorImpl*) const override { unexpected(); }
  c10::Layout layout(const TensorImpl*) const override { unexpected(); }
  c10::SymInt sym_numel(const TensorImpl*) const override { unexpected(); }
  c10::SymIntArrayRef sym_strides(const TensorImpl*) const override { unexpected(); }
  c10::SymInt sym_storage_offset(const TensorImpl*) const override { unexpected(); }
  void trace_gpu_event_creation(c10::DeviceType, uintptr_t) const override { unexpected(); }
  void trace_gpu_event_deletion(c10::DeviceType, uintptr_t) const override { unexpected(); }
  void trace_gpu_event_record(c10::DeviceType, uintptr_t, uintptr_t) const override { unexpected(); }
  void trace_gpu_event_wait(c10::DeviceType, uintptr_t, uintptr_t) const override { unexpected(); }
  void trace_gpu_memory_allocation(c10::DeviceType, uintptr_t) const override { unexpected(); }
  void trace_gpu_memory_deallocation(c10::DeviceType, uintptr_t) const override { unexpected(); }
  void trace_gpu_stream_creation(c10::DeviceType, uintptr_t) const override { unexpected(); }
  void trace_gpu_stream_synchronization(c10::DeviceType, uintptr_t) const override { unexpected(); }
  void trace_gpu_event_synchronization(c10::DeviceType, uintptr_t) const override { unexpected(); }

 private:
  template <typename T>
  T note(T answer) const {
    ++asked;
    return answer;
  }
  [[noreturn]] static void unexpected() { throw std::logic_error("a call that these tests do not make"); }
};

}  // namespace interpool::testing
