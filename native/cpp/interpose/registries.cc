// Registries that refuse a name they have: custom classes, opaque types and
// control-plane handlers. Each private copy brings the same names; the first
// registration serves all.
#include <torch/csrc/jit/frontend/schema_type_parser.h>
#include <torch/custom_class.h>
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include <algorithm>
#include <mutex>
#include <set>

#include "interpreters.h"
#include "original.h"

namespace interpool {
namespace {

std::mutex mutex;  // guards the sets and the list below; a leaf lock

std::set<std::string>& methods() {
  static auto* const all = new std::set<std::string>;
  return *all;
}

// Methods of copies that came second: unused, but callers keep pointers to them.
std::vector<std::unique_ptr<torch::jit::Function>>& spare_methods() {
  static auto* const all = new std::vector<std::unique_ptr<torch::jit::Function>>;
  return *all;
}

bool is_custom_class(const c10::ClassType& type) {
  return type.name().has_value() && type.name()->qualifiedName().starts_with("__torch__.torch.classes.");
}

// The members of torch::detail::class_base, in order.
struct ClassBase {
  std::string qualified_name;
  at::ClassTypePtr type;
};
static_assert(sizeof(ClassBase) == sizeof(torch::detail::class_base));

using Constructor = void (*)(void*, const std::string&, const std::string&, std::string,
                             const std::type_info&, const std::type_info&);

void construct(void* self, const std::string& ns, const std::string& name, std::string doc,
               const std::type_info& pointer, const std::type_info& capsule) {
  static const auto forward = original<Constructor>(
      "_ZN5torch6detail10class_baseC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES9_S7_"
      "RKSt9type_infoSC_");
  const std::string qualified = "__torch__.torch.classes." + ns + "." + name;
  if (at::ClassTypePtr known = torch::getCustomClass(qualified)) {
    new (self) ClassBase{qualified, std::move(known)};
    return;
  }
  forward(self, ns, name, std::move(doc), pointer, capsule);
}

}  // namespace
}  // namespace interpool

using namespace interpool;

extern "C" {
INTERPOOL_API void
interpool_class_base_c1(void* self, const std::string& ns, const std::string& name, std::string doc, const std::type_info& pointer, const std::type_info& capsule) asm(
    "_ZN5torch6detail10class_baseC1ERKNSt7__cxx1112basic_"
    "stringIcSt11char_traitsIcESaIcEEES9_S7_RKSt9type_infoSC_");
INTERPOOL_API void
interpool_class_base_c2(void* self, const std::string& ns, const std::string& name, std::string doc, const std::type_info& pointer, const std::type_info& capsule) asm(
    "_ZN5torch6detail10class_baseC2ERKNSt7__cxx1112basic_"
    "stringIcSt11char_traitsIcESaIcEEES9_S7_RKSt9type_infoSC_");

void interpool_class_base_c1(void* self, const std::string& ns, const std::string& name, std::string doc,
                             const std::type_info& pointer, const std::type_info& capsule) {
  construct(self, ns, name, std::move(doc), pointer, capsule);
}
void interpool_class_base_c2(void* self, const std::string& ns, const std::string& name, std::string doc,
                             const std::type_info& pointer, const std::type_info& capsule) {
  construct(self, ns, name, std::move(doc), pointer, capsule);
}
}

namespace c10 {

INTERPOOL_API void ClassType::addMethod(torch::jit::Function* method) {
  static const auto forward = original<void (*)(ClassType*, torch::jit::Function*)>(
      "_ZN3c109ClassType9addMethodEPN5torch3jit8FunctionE");
  if (is_custom_class(*this) && findMethod(method->name()) != nullptr) {
    return;
  }
  forward(this, method);
}

}  // namespace c10

namespace torch {

INTERPOOL_API void registerCustomClassMethod(std::unique_ptr<jit::Function> method) {
  static const auto forward = original<void (*)(std::unique_ptr<jit::Function>)>(
      "_ZN5torch25registerCustomClassMethodESt10unique_ptrINS_3jit8FunctionESt14default_"
      "deleteIS2_EE");
  const std::lock_guard lock(mutex);
  if (methods().insert(method->qualname().qualifiedName()).second) {
    forward(std::move(method));
  } else {
    spare_methods().push_back(std::move(method));
  }
}

namespace jit {

INTERPOOL_API void registerOpaqueType(const std::string& name) {
  static const auto forward = original<void (*)(const std::string&)>(
      "_ZN5torch3jit18registerOpaqueTypeERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  const std::lock_guard lock(mutex);
  if (!isRegisteredOpaqueType(name)) {
    forward(name);
  }
}

// Others may still use the name: a name once known stays known.
INTERPOOL_API void unregisterOpaqueType(const std::string&) {}

}  // namespace jit
}  // namespace torch

namespace c10d::control_plane {

INTERPOOL_API void registerHandler(const std::string& name, HandlerFunc function) {
  static const auto forward = original<void (*)(const std::string&, HandlerFunc)>(
      "_ZN4c10d13control_plane15registerHandlerERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEESt8functionIFvRKNS0_7RequestERNS0_8ResponseEEE");
  const std::lock_guard lock(mutex);
  // A host that imported torch first has registered its own, unseen by us.
  const std::vector<std::string> known = getHandlerNames();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    forward(name, std::move(function));
  }
}

}  // namespace c10d::control_plane
