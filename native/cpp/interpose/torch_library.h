// What private copies have registered with the dispatcher, for the host's own copies.
// The caller holds the registration lock.
#pragma once

#include <ATen/core/dispatch/RegistrationHandleRAII.h>
#include <ATen/core/function_schema.h>
#include <c10/core/DispatchKey.h>

#include <functional>
#include <optional>
#include <string>

namespace interpool {

// Holds, for the host, an operator that interpreters have defined and the host has not;
// none where there is no such. Throws where theirs has another schema.
std::optional<c10::RegistrationHandleRAII> hold_definition_for_host(const c10::FunctionSchema& schema);

// The same for a kernel of the same line of source. `debug`: "registered at FILE:LINE".
std::optional<c10::RegistrationHandleRAII> hold_kernel_for_host(const c10::OperatorName& name,
                                                                std::optional<c10::DispatchKey> key,
                                                                const std::string& debug);

using Register = std::function<c10::RegistrationHandleRAII()>;

// Holds what an earlier copy's torch::RegisterOperators registered; else has `register_new` register it.
c10::RegistrationHandleRAII share_definition(const c10::FunctionSchema& schema, const Register& register_new);
c10::RegistrationHandleRAII share_kernel(const c10::OperatorName& name, std::optional<c10::DispatchKey> key,
                                         const Register& register_new);

}  // namespace interpool
