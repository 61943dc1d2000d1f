#include "dlsym_hook.h"

#include <dlfcn.h>

#include <new>
#include <string_view>

#include <interpool/errors.h>
#include "../interpose/got_patching.h"
#include "../upstream/cpython.h"

namespace interpool {
namespace {

// Written by prepare_dlsym_hook.
std::string prefix;
void* own_python = nullptr;
void* program = nullptr;

// C code calls it.
void* lookup(void* handle, const char* name) try {
  if (!is_python_name(name)) {
    return dlsym(handle, name);
  }
  // What the whole program shows is the host's Python: its objects and GIL are not ours.
  const bool anywhere = handle == program || handle == RTLD_DEFAULT;
  // An extension may be called as a module of Python's own (package._io): it has the init function that is
  // meant.
  if (!anywhere && std::string_view(name).starts_with(kInitFunction)) {
    if (void* const own = dlsym(handle, name)) {
      return own;
    }
  }
  void* const where = anywhere ? own_python : handle;
  void* const found = dlsym(where, (prefix + name).c_str());
  return found != nullptr ? found : dlsym(where, name);
} catch (const std::bad_alloc&) {
  return nullptr;
}

}  // namespace

void prepare_dlsym_hook(const std::string& libpython, const std::string& symbol_prefix) {
  prefix = symbol_prefix;
  program = dlopen(nullptr, RTLD_NOW);
  own_python = dlopen(libpython.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (program == nullptr || own_python == nullptr) {
    throw InterpreterStartError(libpython + " is not loaded: " + dlerror());
  }
  hook_dlsym(own_python);  // some builds of Python have ctypes in there
}

void hook_dlsym(void* library) {
  patch_got(library, {{"dlsym", reinterpret_cast<void*>(&lookup)}});
}

bool calls_dlsym(const std::string& file_name) {
  return is_foreign_function_module(file_name);
}

}  // namespace interpool
