#include "thread_state.h"

#include <ATen/DTensorState.h>
#include <ATen/FuncTorchTLS.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <array>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "../upstream/torch_layouts.h"
#if __has_include(<ATen/NodeCreationHooks.h>)
#include <ATen/NodeCreationHooks.h>
#define INTERPOOL_NODE_CREATION_HOOKS  // since torch 2.14
#endif

namespace interpool {
namespace {

// Everything that at::ThreadLocalState keeps is looked at below.
static_assert(sizeof(at::ThreadLocalState) == kThreadLocalStateBytes);

using Dtypes = std::array<at::ScalarType, at::COMPILE_TIME_MAX_DEVICE_TYPES>;

at::ScalarType autocast_dtype(size_t device) {
  return at::autocast::get_autocast_dtype(static_cast<at::DeviceType>(device));
}

const Dtypes& fresh_autocast_dtypes() {
  static const Dtypes fresh = [] {
    Dtypes dtypes;
    std::thread([&] {
      for (size_t i = 0; i < dtypes.size(); ++i) {
        dtypes[i] = autocast_dtype(i);
      }
    }).join();
    return dtypes;
  }();
  return fresh;
}

// The device types that have autocast. The others have no dtype for it, and to look at all takes long.
const std::vector<size_t>& autocast_devices() {
  static const std::vector<size_t> devices = [] {
    std::vector<size_t> found;
    for (size_t i = 0; i < fresh_autocast_dtypes().size(); ++i) {
      if (fresh_autocast_dtypes()[i] != at::ScalarType::Undefined) {
        found.push_back(i);
      }
    }
    return found;
  }();
  return devices;
}

Dtypes autocast_dtypes() {
  Dtypes dtypes = fresh_autocast_dtypes();
  for (const size_t device : autocast_devices()) {
    dtypes[device] = autocast_dtype(device);
  }
  return dtypes;
}

bool no_python_objects() {
  return python_objects(at::impl::ThreadLocalPythonObjects::get_state()).empty();
}

void set_autocast_dtypes(const Dtypes& dtypes) {
  for (const size_t device : autocast_devices()) {
    if (autocast_dtype(device) != dtypes[device]) {
      at::autocast::set_autocast_dtype(static_cast<at::DeviceType>(device), dtypes[device]);
    }
  }
}

bool autograd_is_fresh() {
  const c10::AutogradState& state = c10::AutogradState::get_tls_state();
  return state.get_grad_mode() && !state.get_inference_mode() && state.get_fw_grad_mode() &&
         state.get_multithreading_enabled() && !state.get_view_replay_enabled() &&
         state.get_grad_layout_enforcement_enabled();
}

// Without a Python object, which is its interpreter's.
c10::AutogradState autograd_modes() {
  const c10::AutogradState& state = c10::AutogradState::get_tls_state();
  return state.get_graph_exec_group().has_value()
             ? c10::AutogradState(state.get_grad_mode(), state.get_inference_mode(), state.get_fw_grad_mode(),
                                  state.get_multithreading_enabled())
             : state;
}

bool node_creation_is_fresh() {
#ifdef INTERPOOL_NODE_CREATION_HOOKS
  const auto& hooks = at::impl::NodeCreationHooks::get_tls_state();
  return hooks.stack.empty() && !hooks.is_firing;
#else
  return true;
#endif
}

bool hooks_are_fresh() {
  const auto& callbacks = at::get_record_function_tls_();
  const auto& saved = at::SavedTensorDefaultHooks::get_tls_state();
  return callbacks.sorted_tls_callbacks_.empty() && callbacks.tls_record_function_enabled_ &&
         saved.stack.empty() && !saved.disabled_error_message.has_value() && !saved.is_tracing &&
         node_creation_is_fresh();
}

bool dispatch_is_fresh() {
  using Functions = at::impl::PythonTorchFunctionTLS;
  return c10::impl::TorchDispatchModeTLS::stack_len() == 0 &&
         c10::impl::PythonDispatcherTLS::get_state() == nullptr &&
         Functions::get_disabled_state() == at::impl::ENABLED && Functions::stack_len() == 0 &&
         !Functions::peek_skip_next() && at::functorch::functorchTLSAccessor() == nullptr &&
         !at::functionalization::impl::getFunctionalizationReapplyViewsTLS() &&
         !at::get_dtensor_allow_implicit_replication();
}

}  // namespace

struct Modes {
  c10::AutogradState autograd;
  c10::impl::PODLocalDispatchKeySet keys;
  Dtypes dtypes;
  bool autocast_cache;

  // The keys of the device types for which autocast is on.
  c10::DispatchKeySet autocast() const { return c10::autocast_dispatch_keyset - keys.excluded(); }
};

ThreadState::ThreadState() : autocast_cache_(at::autocast::is_autocast_cache_enabled()) {}

void ThreadState::set() const {
  at::ThreadLocalState::setThreadLocalState(most_);
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
}

CallerModes modes_of_thread() {
  const Modes modes{.autograd = autograd_modes(),
                    .keys = c10::impl::raw_local_dispatch_key_set,
                    .dtypes = autocast_dtypes(),
                    .autocast_cache = at::autocast::is_autocast_cache_enabled()};
  if (modes.autograd.get_grad_mode() && !modes.autograd.get_inference_mode() && modes.autocast().empty() &&
      modes.dtypes == fresh_autocast_dtypes() && modes.autocast_cache) {
    return nullptr;
  }
  return std::make_shared<const Modes>(modes);
}

void set_modes(const CallerModes& modes) {
  if (modes == nullptr) {
    return;
  }
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  if (modes->autograd.get_inference_mode()) {  // as c10::InferenceMode does, which would take it back
    c10::AutogradState::set_tls_state(c10::AutogradState(false, true, false, false));
    keys.included_ = keys.included_.remove(c10::DispatchKey::ADInplaceOrView);
    keys.excluded_ = keys.excluded_ | c10::autograd_dispatch_keyset;
  }
  keys.excluded_ = keys.excluded_ - modes->autocast();
  c10::impl::_force_tls_local_dispatch_key_set(keys);
  c10::AutogradState::get_tls_state().set_grad_mode(modes->autograd.get_grad_mode());
  set_autocast_dtypes(modes->dtypes);
  at::autocast::set_autocast_cache_enabled(modes->autocast_cache);
}

bool is_fresh_but_for_modes() {
  return !c10::AutogradState::get_tls_state().get_graph_exec_group().has_value() && dispatch_is_fresh() &&
         hooks_are_fresh() && c10::ThreadLocalDebugInfo::current() == nullptr && no_python_objects();
}

void clear_modes() {
  static const Modes fresh{.autograd = {true, false, true, true},
                           .keys = {},
                           .dtypes = fresh_autocast_dtypes(),
                           .autocast_cache = true};
  restore_modes(fresh);
}

void restore_modes(const Modes& modes) {
  c10::AutogradState::set_tls_state(modes.autograd);
  c10::impl::raw_local_dispatch_key_set = modes.keys;
  set_autocast_dtypes(modes.dtypes);
  at::autocast::set_autocast_cache_enabled(modes.autocast_cache);
}

int autocast_blocks() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

void restore_autocast_blocks(int before) {
  const int now = autocast_blocks();
  if (now == before) {
    return;
  }
  for (int i = now; i < before; ++i) {
    at::autocast::increment_nesting();
  }
  for (int i = before; i < now; ++i) {
    at::autocast::decrement_nesting();
  }
  at::autocast::clear_cache();  // what the outermost block's end would have done
}

Trace take_trace() {
  Trace trace = torch::jit::tracer::getTracingState();
  if (trace != nullptr) {
    torch::jit::tracer::setTracingState(nullptr);
  }
  return trace;
}

void restore_trace(Trace trace) {
  if (trace != torch::jit::tracer::getTracingState()) {
    torch::jit::tracer::setTracingState(std::move(trace));
  }
}

bool thread_state_is_fresh() {
  const auto& keys = c10::impl::raw_local_dispatch_key_set;
  return keys.included_ == 0 && keys.excluded_ == 0 && autograd_is_fresh() && is_fresh_but_for_modes() &&
         autocast_dtypes() == fresh_autocast_dtypes() && at::autocast::is_autocast_cache_enabled();
}

FreshThreadState::FreshThreadState() {
  std::optional<ThreadState> fresh;
  std::thread([&] { fresh.emplace(); }).join();
  fresh->set();
}

FreshThreadState::~FreshThreadState() {
  own_.set();
}

}  // namespace interpool
