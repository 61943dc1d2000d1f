#include "thread_state.h"

#include <ATen/DTensorState.h>
#include <ATen/FuncTorchTLS.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include <array>
#include <optional>
#include <thread>

#include "../upstream/torch_layouts.h"

namespace interpool {
namespace {

// Everything that at::ThreadLocalState keeps is looked at below.
static_assert(sizeof(at::ThreadLocalState) == kThreadLocalStateBytes);

using Dtypes = std::array<at::ScalarType, at::COMPILE_TIME_MAX_DEVICE_TYPES>;

Dtypes autocast_dtypes() {
  Dtypes dtypes;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    dtypes[i] = at::autocast::get_autocast_dtype(static_cast<at::DeviceType>(i));
  }
  return dtypes;
}

const Dtypes& fresh_autocast_dtypes() {
  static const Dtypes fresh = [] {
    Dtypes dtypes;
    std::thread([&] { dtypes = autocast_dtypes(); }).join();
    return dtypes;
  }();
  return fresh;
}

bool no_python_objects() {
  return python_objects(at::impl::ThreadLocalPythonObjects::get_state()).empty();
}

bool autograd_is_fresh() {
  const c10::AutogradState& state = c10::AutogradState::get_tls_state();
  return state.get_grad_mode() && !state.get_inference_mode() && state.get_fw_grad_mode() &&
         state.get_multithreading_enabled() && !state.get_view_replay_enabled() &&
         state.get_grad_layout_enforcement_enabled() && !state.get_graph_exec_group().has_value();
}

bool hooks_are_fresh() {
  const auto& callbacks = at::get_record_function_tls_();
  const auto& saved = at::SavedTensorDefaultHooks::get_tls_state();
  return callbacks.sorted_tls_callbacks_.empty() && callbacks.tls_record_function_enabled_ &&
         saved.stack.empty() && !saved.disabled_error_message.has_value() && !saved.is_tracing;
}

bool modes_are_fresh() {
  using Functions = at::impl::PythonTorchFunctionTLS;
  return c10::impl::TorchDispatchModeTLS::stack_len() == 0 &&
         c10::impl::PythonDispatcherTLS::get_state() == nullptr &&
         Functions::get_disabled_state() == at::impl::ENABLED && Functions::stack_len() == 0 &&
         !Functions::peek_skip_next() && at::functorch::functorchTLSAccessor() == nullptr &&
         !at::functionalization::impl::getFunctionalizationReapplyViewsTLS() &&
         !at::get_dtensor_allow_implicit_replication();
}

}  // namespace

bool thread_state_is_fresh() {
  const auto& keys = c10::impl::raw_local_dispatch_key_set;
  return keys.included_ == 0 && keys.excluded_ == 0 && autograd_is_fresh() && modes_are_fresh() &&
         hooks_are_fresh() && c10::ThreadLocalDebugInfo::current() == nullptr && no_python_objects() &&
         autocast_dtypes() == fresh_autocast_dtypes();
}

FreshThreadState::FreshThreadState() {
  std::optional<at::ThreadLocalState> fresh;
  std::thread([&] { fresh.emplace(); }).join();
  at::ThreadLocalState::setThreadLocalState(*fresh);
}

FreshThreadState::~FreshThreadState() {
  at::ThreadLocalState::setThreadLocalState(own_);
}

}  // namespace interpool
