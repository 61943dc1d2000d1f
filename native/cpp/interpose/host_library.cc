#include "host_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/custom_class.h>

#include "got_patching.h"
#include "interpreters.h"
#include "original.h"
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

constexpr const char* kRegisterDef =
    "_ZN3c1010Dispatcher11registerDefENS_14FunctionSchemaENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE"
    "ESt6vectorIN5torch10headeronly3TagESaISB_EE";
using RegisterDef = RegistrationHandleRAII (*)(Dispatcher*, FunctionSchema, std::string,
                                               std::vector<at::Tag>);

RegistrationHandleRAII register_def(Dispatcher* self, FunctionSchema schema, std::string debug,
                                    std::vector<at::Tag> tags) {
  static const auto forward = original<RegisterDef>(kRegisterDef);
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

constexpr const char* kRegisterImpl =
    "_ZN3c1010Dispatcher12registerImplENS_12OperatorNameESt8optionalINS_11DispatchKeyEENS_"
    "14KernelFunctionES2_"
    "INS_4impl12CppSignatureEESt10unique_ptrINS_14FunctionSchemaESt14default_deleteISA_EENSt7__cxx1112basic_"
    "stringIcSt11char_traitsIcESaIcEEE";
using RegisterImpl = RegistrationHandleRAII (*)(Dispatcher*, OperatorName, std::optional<DispatchKey>,
                                                KernelFunction, std::optional<c10::impl::CppSignature>,
                                                std::unique_ptr<FunctionSchema>, std::string);

RegistrationHandleRAII register_impl(Dispatcher* self, OperatorName name, std::optional<DispatchKey> key,
                                     KernelFunction kernel, std::optional<c10::impl::CppSignature> signature,
                                     std::unique_ptr<FunctionSchema> inferred, std::string debug) {
  static const auto forward = original<RegisterImpl>(kRegisterImpl);
  if (debug == kRegisterOperators) {
    const std::lock_guard lock(registration_mutex());
    return share_kernel(name, key, [&] {
      return forward(self, name, key, std::move(kernel), std::move(signature), std::move(inferred),
                     std::move(debug));
    });
  }
  if (current_interpreter() == kHost) {
    const std::lock_guard lock(registration_mutex());
    if (auto held = hold_kernel_for_host(name, key, debug)) {
      return std::move(*held);
    }
  }
  return forward(self, std::move(name), key, std::move(kernel), std::move(signature), std::move(inferred),
                 std::move(debug));
}

constexpr const char* kRegisterClass = "_ZN5torch19registerCustomClassESt10shared_ptrIN3c109ClassTypeEE";
using RegisterClass = void (*)(at::ClassTypePtr);

void register_class(at::ClassTypePtr type) {
  static const auto forward = original<RegisterClass>(kRegisterClass);
  // The class that a private copy registered serves the host, too: what the host's
  // copy adds to its own belongs to nobody.
  if (current_interpreter() == kHost && torch::getCustomClass(type->name()->qualifiedName()) != nullptr) {
    return;
  }
  forward(std::move(type));
}

}  // namespace

void patch_host_registration(void* libtorch_cpu) {
  patch_got(libtorch_cpu, kRegisterDef, reinterpret_cast<void*>(&register_def));
  patch_got(libtorch_cpu, kRegisterImpl, reinterpret_cast<void*>(&register_impl));
  patch_got(libtorch_cpu, kRegisterClass, reinterpret_cast<void*>(&register_class));
}

}  // namespace interpool
