// Kernels that Python code registers: one per interpreter behind one dispatcher
// entry. Owner and lock: see kernels.cc.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/RegistrationHandleRAII.h>
#include <ATen/core/operator_name.h>
#include <c10/core/DispatchKey.h>

#include <optional>

#include "interpreters.h"

namespace interpool {

// Is this kernel a call into some interpreter's Python?
bool is_python_kernel(const c10::KernelFunction& kernel);

// Makes `kernel` what `op` does for `key` in interpreter `id`, and nothing to the
// others: an interpreter without a kernel of its own gets what stood there before
// any Python kernel, or an error that says so. The handle takes it back.
c10::RegistrationHandleRAII add_python_kernel(const c10::OperatorName& op,
                                              std::optional<c10::DispatchKey> key, InterpreterId id,
                                              c10::KernelFunction kernel);

// Puts every Python kernel that the host registered before there was a pool behind
// a multiplexer: they are the host's alone.
void claim_host_kernels();

}  // namespace interpool
