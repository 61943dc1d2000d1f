// Kernels that Python code registers: one per interpreter behind one dispatcher
// entry. Owner and lock: see kernels.cc.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/RegistrationHandleRAII.h>
#include <ATen/core/operator_name.h>
#include <c10/core/DispatchKey.h>

#include <optional>
#include <utility>
#include <vector>

#include "interpreters.h"

namespace interpool {

// Is this kernel a call into some interpreter's Python?
bool is_python_kernel(const c10::KernelFunction& kernel);

// Makes `kernel` what `op` does for `key` in interpreter `id`, and nothing to the others. An interpreter
// without a kernel of its own gets what stood there before any Python kernel, or an error that says so. The
// handle takes it back.
c10::RegistrationHandleRAII add_python_kernel(const c10::OperatorName& op,
                                              std::optional<c10::DispatchKey> key, InterpreterId id,
                                              c10::KernelFunction kernel);

// The kernels that interpreter has, in the order in which the process got the first one of each.
std::vector<std::pair<c10::OperatorName, std::optional<c10::DispatchKey>>> python_kernels_of(
    InterpreterId id);

// Has the dispatcher know that interpreters have kernels of their own there, though none has yet.
void expect_python_kernel(const c10::OperatorName& op, std::optional<c10::DispatchKey> key);

// Puts every Python kernel that the host registered before there was a pool behind
// a multiplexer: they are the host's alone.
void claim_host_kernels();

}  // namespace interpool
