// torch::Library as private copies see it.
//
// Every copy of libtorch_python, and of an extension with a TORCH_LIBRARY block, runs the same static
// initialisers against one dispatcher. The first to define an operator defines it for the process. Copies
// that follow become further holders of that definition, which goes when its last holder goes. C++ kernels
// are shared the same way; Python kernels are kept per interpreter (kernels.h).
#include "torch_library.h"

#include <map>
#include <memory>
#include <set>

#include "../upstream/torch_symbols.h"
#include "../upstream/torch_words.h"
#include "interpreters.h"
#include "kernels.h"
#include "registration.h"

namespace interpool {
namespace {

// One registration with the dispatcher, held by interpreters.
struct Shared {
  std::optional<c10::RegistrationHandleRAII> registration;  // absent: was there before us
  std::optional<c10::FunctionSchema> schema;                // definitions only
  std::optional<Fallthrough> fallthrough;                   // such kernels only
  std::multiset<InterpreterId> holders;
};

constexpr InterpreterId kEverybody = -2;  // among holders: never lets go

// Guarded by the registration lock.
std::map<std::string, Shared>& table() {
  static auto* const all = new std::map<std::string, Shared>;
  return *all;
}

// Has the host imported torch, and perhaps before there was a pool? What its stock
// library registered then was not seen here; a slot's is the same.
bool host_came_first(InterpreterId id) {
  const Route* host = route_of(kHost);
  return id != kHost && host != nullptr && host->vtable != nullptr;
}

c10::RegistrationHandleRAII hold(const std::string& key, InterpreterId id) {
  table()[key].holders.insert(id);
  return c10::RegistrationHandleRAII([key, id] {
    const std::lock_guard lock(registration_mutex());
    std::optional<c10::RegistrationHandleRAII> last;  // taken back under the lock
    auto found = table().find(key);
    if (found == table().end()) {
      return;
    }
    auto& holders = found->second.holders;
    if (auto mine = holders.find(id); mine != holders.end()) {
      holders.erase(mine);
    }
    if (holders.empty()) {
      last = std::move(found->second.registration);
      table().erase(found);
    }
  });
}

void check_same_schema(const c10::FunctionSchema& known, const c10::FunctionSchema& wanted) {
  TORCH_CHECK(c10::toString(known) == c10::toString(wanted), "interpool: operator ",
              c10::toString(known.operator_name()),
              " is defined by another interpreter of this process as\n  ", c10::toString(known),
              "\nand this one defines it as\n  ", c10::toString(wanted),
              "\nOne name can have only one schema in a process: rename one of them.");
}

// The same line of source in another copy of the same library: one is enough.
// `place`: its file and line.
std::string kernel_key(const std::string& place, const c10::OperatorName& name,
                       std::optional<c10::DispatchKey> key) {
  return "impl " + place + " " + c10::toString(name) + " " + (key.has_value() ? c10::toString(*key) : "");
}

std::optional<c10::RegistrationHandleRAII> hold_for_host(const std::string& key) {
  const auto known = table().find(key);
  if (known == table().end() || known->second.holders.count(kHost) != 0) {
    return std::nullopt;
  }
  return hold(key, kHost);
}

}  // namespace

std::optional<c10::RegistrationHandleRAII> hold_definition_for_host(const c10::FunctionSchema& schema) {
  const std::string key = "def " + c10::toString(schema.operator_name());
  auto held = hold_for_host(key);
  if (held.has_value()) {
    check_same_schema(*table()[key].schema, schema);
  }
  return held;
}

std::optional<c10::RegistrationHandleRAII> hold_kernel_for_host(const c10::OperatorName& name,
                                                                std::optional<c10::DispatchKey> key,
                                                                const std::string& debug) {
  constexpr std::string_view before = kRegisteredAt;
  if (!debug.starts_with(before)) {
    return std::nullopt;
  }
  return hold_for_host(kernel_key(debug.substr(before.size()), name, key));
}

c10::RegistrationHandleRAII share_definition(const c10::FunctionSchema& schema,
                                             const Register& register_new) {
  const InterpreterId id = current_interpreter();
  const std::string key = "def " + c10::toString(schema.operator_name());
  if (table().count(key) == 0 && host_came_first(id)) {
    if (const auto before = c10::Dispatcher::singleton().findSchema(schema.operator_name())) {
      Shared& shared = table()[key];
      shared.schema = before->schema();
      shared.holders.insert(kHost);
    }
  }
  if (const auto known = table().find(key); known != table().end() && known->second.holders.count(id) == 0) {
    check_same_schema(*known->second.schema, schema);
    return hold(key, id);
  }
  // New to the process, or a second time in one interpreter: torch's own error.
  c10::RegistrationHandleRAII registration = register_new();
  Shared& shared = table()[key];
  shared.registration = std::move(registration);
  shared.schema = schema;
  return hold(key, id);
}

c10::RegistrationHandleRAII share_kernel(const c10::OperatorName& name, std::optional<c10::DispatchKey> key,
                                         const Register& register_new) {
  const InterpreterId id = current_interpreter();
  const std::string source = kernel_key(kRegisterOperators, name, key);
  if (table().count(source) == 0 && host_came_first(id)) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    const auto defined = table().find("def " + c10::toString(name));
    const bool defined_here = defined != table().end() && defined->second.registration.has_value();
    if (op.has_value() && !defined_here &&
        op->hasKernelForDispatchKey(key.value_or(c10::DispatchKey::CompositeImplicitAutograd))) {
      table()[source].holders.insert(kHost);
    }
  }
  const auto known = table().find(source);
  if (known != table().end()) {
    // A second time in one interpreter is another kernel, in place of the first.
    return known->second.holders.count(id) == 0 ? hold(source, id) : register_new();
  }
  c10::RegistrationHandleRAII registration = register_new();
  table()[source].registration = std::move(registration);
  return hold(source, id);
}

std::vector<c10::OperatorName> definitions_of(InterpreterId id) {
  std::vector<c10::OperatorName> found;
  for (const auto& [key, shared] : table()) {
    if (shared.schema.has_value() && shared.holders.count(id) != 0) {
      found.push_back(shared.schema->operator_name());
    }
  }
  return found;
}

std::vector<Fallthrough> fallthroughs_of(InterpreterId id) {
  std::vector<Fallthrough> found;
  for (const auto& [key, shared] : table()) {
    if (shared.fallthrough.has_value() && shared.holders.count(id) != 0) {
      found.push_back(*shared.fallthrough);
    }
  }
  return found;
}

void define_for_process(c10::FunctionSchema schema, const std::string& debug,
                        const std::vector<at::Tag>& tags) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.findSchema(schema.operator_name()).has_value()) {
    return;
  }
  Shared& shared = table()["def " + c10::toString(schema.operator_name())];
  shared.schema = schema;
  shared.holders.insert(kEverybody);
  shared.registration = dispatcher.registerDef(std::move(schema), debug, tags);
}

void fall_through_for_process(const Fallthrough& fallthrough) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto& [name, key, place] = fallthrough;
  const std::string source = kernel_key(place, name, key);
  const auto op = dispatcher.findOp(name);
  if (table().count(source) != 0 || !op.has_value() ||
      (key.has_value() && op->hasKernelForDispatchKey(*key))) {
    return;
  }
  Shared& shared = table()[source];
  shared.fallthrough = fallthrough;
  shared.holders.insert(kEverybody);
  shared.registration = dispatcher.registerImpl(name, key, c10::KernelFunction::makeFallthrough(),
                                                std::nullopt, nullptr, kRegisteredAt + place);
}

}  // namespace interpool

using namespace interpool;
using torch::CppFunction;
using torch::Library;

namespace {

// The constructor, under its own name: written as a constructor it would
// initialise the members before the original does.
void construct(void* self, Library::Kind kind, std::string ns, std::optional<c10::DispatchKey> key,
               const char* file, uint32_t line) {
  // A namespace may be opened once per process with DEF, any number of times as
  // a fragment, and each copy opens it.
  torch_symbols.library_constructor(self, kind == Library::DEF ? Library::FRAGMENT : kind, std::move(ns), key,
                                    file, line);
}

}  // namespace

extern "C" {
INTERPOOL_API void interpool_library_c1(void* self, Library::Kind kind, std::string ns,
                                        std::optional<c10::DispatchKey> key, const char* file,
                                        uint32_t line) asm(INTERPOOL_LIBRARY("C1"));
INTERPOOL_API void interpool_library_c2(void* self, Library::Kind kind, std::string ns,
                                        std::optional<c10::DispatchKey> key, const char* file,
                                        uint32_t line) asm(INTERPOOL_LIBRARY("C2"));

void interpool_library_c1(void* self, Library::Kind kind, std::string ns, std::optional<c10::DispatchKey> key,
                          const char* file, uint32_t line) {
  construct(self, kind, std::move(ns), key, file, line);
}
void interpool_library_c2(void* self, Library::Kind kind, std::string ns, std::optional<c10::DispatchKey> key,
                          const char* file, uint32_t line) {
  construct(self, kind, std::move(ns), key, file, line);
}
}

namespace torch {

INTERPOOL_API Library& Library::_def(c10::FunctionSchema&& schema, c10::OperatorName* out_name,
                                     const std::vector<at::Tag>& tags, _RegisterOrVerify) & {
  const InterpreterId id = current_interpreter();
  c10::FunctionSchema named = schema.cloneWithName(schema.name(), schema.overload_name());
  if (ns_.has_value()) {
    named.setNamespaceIfNotSet(ns_->c_str());
  }
  const c10::OperatorName name = named.operator_name();
  const std::string key = "def " + c10::toString(name);

  const std::lock_guard lock(registration_mutex());
  auto known = table().find(key);
  if (known == table().end()) {
    const auto before = c10::Dispatcher::singleton().findSchema(name);
    if (before.has_value() && host_came_first(id)) {
      Shared& shared = table()[key];
      shared.schema = before->schema();
      shared.holders.insert(kHost);
      known = table().find(key);
    }
  }
  if (known != table().end() && known->second.holders.count(id) == 0) {
    check_same_schema(*known->second.schema, named);
    registrars_.push_back(hold(key, id));
  } else {
    // New to the process, or a second time in one interpreter: torch's own error.
    torch_symbols.library_def(this, std::move(schema), nullptr, tags, _RegisterOrVerify::REGISTER);
    Shared& shared = table()[key];
    shared.registration = std::move(registrars_.back());
    shared.schema = std::move(named);
    registrars_.back() = hold(key, id);
  }
  if (out_name != nullptr) {
    *out_name = name;
  }
  return *this;
}

INTERPOOL_API Library& Library::_def(std::variant<c10::OperatorName, c10::FunctionSchema>&& name_or_schema,
                                     CppFunction&& function, const std::vector<at::Tag>& tags) & {
  c10::FunctionSchema schema = [&] {
    if (std::holds_alternative<c10::FunctionSchema>(name_or_schema)) {
      return std::get<c10::FunctionSchema>(std::move(name_or_schema));
    }
    auto name = std::get<c10::OperatorName>(std::move(name_or_schema));
    TORCH_CHECK(function.schema_, "interpool: the schema of ", c10::toString(name),
                " cannot be inferred from its function; give it to def()");
    auto inferred = function.schema_->cloneWithName(std::move(name.name), std::move(name.overload_name));
    inferred.setAliasAnalysis(c10::AliasAnalysisKind::CONSERVATIVE);
    return inferred;
  }();
  c10::OperatorName name("", "");
  _def(std::move(schema), &name, tags, _RegisterOrVerify::REGISTER);
  // The block's own key, as in torch: def(..., function) under no key is the
  // kernel for every backend, CompositeImplicitAutograd.
  const std::string full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
  return _impl(full.c_str(), std::move(function), _RegisterOrVerify::REGISTER);
}

INTERPOOL_API Library& Library::_impl(const char* name_text, CppFunction&& function, _RegisterOrVerify) & {
  const InterpreterId id = current_interpreter();
  const c10::OperatorName name = _resolve(name_text);
  const auto key = function.dispatch_key_.has_value() ? function.dispatch_key_ : dispatch_key_;

  if (is_python_kernel(function.func_)) {
    registrars_.push_back(add_python_kernel(name, key, id, std::move(function.func_)));
    return *this;
  }
  const std::string place = std::string(file_ != nullptr ? file_ : "") + ":" + std::to_string(line_);
  const std::string source = kernel_key(place, name, key);
  const std::lock_guard lock(registration_mutex());
  if (table().count(source) == 0 && host_came_first(id)) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    const auto defined = table().find("def " + c10::toString(name));
    const bool defined_here = defined != table().end() && defined->second.registration.has_value();
    if (op.has_value() && !defined_here &&
        op->hasKernelForDispatchKey(key.value_or(c10::DispatchKey::CompositeImplicitAutograd)) &&
        op->dumpState().find(place) != std::string::npos) {
      table()[source].holders.insert(kHost);
    }
  }
  if (auto known = table().find(source); known != table().end() && known->second.holders.count(id) == 0) {
    registrars_.push_back(hold(source, id));
    return *this;
  }
  const bool falls_through = function.func_.isFallthrough();
  torch_symbols.library_impl(this, name_text, std::move(function), _RegisterOrVerify::REGISTER);
  Shared& shared = table()[source];
  if (falls_through) {
    shared.fallthrough = Fallthrough{name, key, place};
  }
  shared.registration = std::move(registrars_.back());
  registrars_.back() = hold(source, id);
  return *this;
}

INTERPOOL_API Library& Library::_fallback(CppFunction&& function) & {
  TORCH_CHECK(!is_python_kernel(function.func_),
              "interpool: a backend fallback written in Python is one per process and would run in "
              "the wrong interpreter; register kernels for the operators that need it instead.");
  const auto key = function.dispatch_key_.has_value() ? function.dispatch_key_ : dispatch_key_;
  const InterpreterId id = current_interpreter();
  const std::string source = std::string("fallback ") + (key.has_value() ? c10::toString(*key) : "");
  const std::lock_guard lock(registration_mutex());
  if (auto known = table().find(source); known != table().end() && known->second.holders.count(id) == 0) {
    registrars_.push_back(hold(source, id));
    return *this;
  }
  const size_t before = registrars_.size();
  torch_symbols.library_fallback(this, std::move(function));
  // One fallback may register several keys: keep them together.
  auto all = std::make_shared<std::vector<c10::RegistrationHandleRAII>>();
  while (registrars_.size() > before) {
    all->push_back(std::move(registrars_.back()));
    registrars_.pop_back();
  }
  table()[source].registration.emplace([all]() mutable { all.reset(); });
  registrars_.push_back(hold(source, id));
  return *this;
}

}  // namespace torch
