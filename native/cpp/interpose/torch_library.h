// What private copies have registered with the dispatcher, for the host's own copies and for notes of it.
// The caller holds the registration lock.
#pragma once

#include <ATen/core/dispatch/RegistrationHandleRAII.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/function_schema.h>
#include <c10/core/DispatchKey.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "interpreters.h"

namespace interpool {

// Holds, for the host, an operator that interpreters have defined and the host has not; none if there is no
// such. Throws if theirs has another schema.
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

// What an interpreter has registered, or would have if no other had before it: operators; and that they have
// nothing to do for a key. `place`: the file and line that say so.
struct Fallthrough {
  c10::OperatorName name;
  std::optional<c10::DispatchKey> key;
  std::string place;
};
std::vector<c10::OperatorName> definitions_of(InterpreterId id);
std::vector<Fallthrough> fallthroughs_of(InterpreterId id);

// Registers it for good, unless it is there: interpreters that do so, too, become its further holders.
void define_for_process(c10::FunctionSchema schema, const std::string& debug,
                        const std::vector<at::Tag>& tags);
void fall_through_for_process(const Fallthrough& fallthrough);

}  // namespace interpool
