#include "host_library.h"

#include "../upstream/torch_symbols.h"
#include "../upstream/torch_words.h"
#include "got_patching.h"
#include "interpreters.h"
#include "registration.h"
#include "torch_library.h"

namespace interpool {
namespace {

using c10::Dispatcher;
using c10::DispatchKey;
using c10::FunctionSchema;
using c10::KernelFunction;
using c10::OperatorName;
using c10::RegistrationHandleRAII;

// Members of Dispatcher, as the free functions that they are to the machine.

RegistrationHandleRAII register_def(Dispatcher* self, FunctionSchema schema, std::string debug,
                                    std::vector<at::Tag> tags) {
  const auto forward = torch_symbols.register_def;
  if (debug == kRegisterOperators) {
    const std::lock_guard lock(registration_mutex());
    const FunctionSchema shared = schema;
    return share_definition(
        shared, [&] { return forward(self, std::move(schema), std::move(debug), std::move(tags)); });
  }
  if (current_interpreter() == kHost) {
    const std::lock_guard lock(registration_mutex());
    if (auto held = hold_definition_for_host(schema)) {
      return std::move(*held);
    }
  }
  return forward(self, std::move(schema), std::move(debug), std::move(tags));
}

RegistrationHandleRAII register_impl(Dispatcher* self, OperatorName name, std::optional<DispatchKey> key,
                                     KernelFunction kernel, std::optional<c10::impl::CppSignature> signature,
                                     std::unique_ptr<FunctionSchema> inferred, std::string debug) {
  const auto forward = torch_symbols.register_impl;
  if (debug == kRegisterOperators) {
    const std::lock_guard lock(registration_mutex());
    return share_kernel(name, key, [&] {
      return forward(self, name, key, std::move(kernel), signature, std::move(inferred), std::move(debug));
    });
  }
  if (current_interpreter() == kHost) {
    const std::lock_guard lock(registration_mutex());
    if (auto held = hold_kernel_for_host(name, key, debug)) {
      return std::move(*held);
    }
  }
  return forward(self, std::move(name), key, std::move(kernel), signature, std::move(inferred),
                 std::move(debug));
}

void register_class(at::ClassTypePtr type) {
  // The class that a private copy registered serves the host, too: what the host's copy adds to its own
  // belongs to no interpreter.
  if (current_interpreter() == kHost && torch::getCustomClass(type->name()->qualifiedName()) != nullptr) {
    return;
  }
  torch_symbols.register_class(std::move(type));
}

}  // namespace

void patch_host_registration(void* libtorch_cpu) {
  patch_got(libtorch_cpu, {{mangled::register_def, reinterpret_cast<void*>(&register_def)},
                           {mangled::register_impl, reinterpret_cast<void*>(&register_impl)},
                           {mangled::register_class, reinterpret_cast<void*>(&register_class)}});
}

}  // namespace interpool
