// Registries that refuse a name they have: custom classes, opaque types and
// control-plane handlers. Each private copy brings the same names; the first
// registration serves all.
#include <algorithm>
#include <mutex>
#include <set>

#include "../upstream/torch_layouts.h"
#include "../upstream/torch_symbols.h"
#include "../upstream/torch_words.h"
#include "interpreters.h"
#include "opaque_types.h"

namespace interpool {
namespace {

std::mutex registries_mutex;  // guards the sets and the list below; a leaf lock

std::set<std::string>& methods() {
  static auto* const all = new std::set<std::string>;
  return *all;
}

// Who has registered which.
std::set<std::pair<InterpreterId, std::string>>& opaque_types() {
  static auto* const all = new std::set<std::pair<InterpreterId, std::string>>;
  return *all;
}

// Methods of copies that came second: unused, but callers keep pointers to them.
std::vector<std::unique_ptr<torch::jit::Function>>& spare_methods() {
  static auto* const all = new std::vector<std::unique_ptr<torch::jit::Function>>;
  return *all;
}

bool is_custom_class(const c10::ClassType& type) {
  return type.name().has_value() && type.name()->qualifiedName().starts_with(kCustomClassPrefix);
}

void construct(void* self, const std::string& ns, const std::string& name, std::string doc,
               const std::type_info& pointer, const std::type_info& capsule) {
  const std::string qualified = kCustomClassPrefix + ns + "." + name;
  if (at::ClassTypePtr known = torch::getCustomClass(qualified)) {
    new (self) ClassBase{qualified, std::move(known)};
    return;
  }
  torch_symbols.class_base_constructor(self, ns, name, std::move(doc), pointer, capsule);
}

}  // namespace

std::vector<std::string> opaque_types_of(InterpreterId id) {
  const std::lock_guard lock(registries_mutex);
  std::vector<std::string> names;
  for (const auto& [who, name] : opaque_types()) {
    if (who == id) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace interpool

using namespace interpool;

extern "C" {
INTERPOOL_API void interpool_class_base_c1(void* self, const std::string& ns, const std::string& name,
                                           std::string doc, const std::type_info& pointer,
                                           const std::type_info& capsule) asm(INTERPOOL_CLASS_BASE("C1"));
INTERPOOL_API void interpool_class_base_c2(void* self, const std::string& ns, const std::string& name,
                                           std::string doc, const std::type_info& pointer,
                                           const std::type_info& capsule) asm(INTERPOOL_CLASS_BASE("C2"));

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
  if (is_custom_class(*this) && findMethod(method->name()) != nullptr) {
    return;
  }
  torch_symbols.add_method(this, method);
}

}  // namespace c10

namespace torch {

INTERPOOL_API void registerCustomClassMethod(std::unique_ptr<jit::Function> method) {
  const std::lock_guard lock(registries_mutex);
  if (methods().insert(method->qualname().qualifiedName()).second) {
    torch_symbols.register_class_method(std::move(method));
  } else {
    spare_methods().push_back(std::move(method));
  }
}

namespace jit {

INTERPOOL_API void registerOpaqueType(const std::string& name) {
  const InterpreterId id = current_interpreter();
  const std::lock_guard lock(registries_mutex);
  opaque_types().emplace(id, name);
  if (!isRegisteredOpaqueType(name)) {
    torch_symbols.register_opaque_type(name);
  }
}

// Others may still use the name: a name once known stays known.
INTERPOOL_API void unregisterOpaqueType(const std::string&) {}

}  // namespace jit
}  // namespace torch

namespace c10d::control_plane {

INTERPOOL_API void registerHandler(const std::string& name, HandlerFunc function) {
  const std::lock_guard lock(registries_mutex);
  // A host that imported torch first has registered its own, which was not seen here.
  const std::vector<std::string> known = getHandlerNames();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    torch_symbols.register_handler(name, std::move(function));
  }
}

}  // namespace c10d::control_plane
