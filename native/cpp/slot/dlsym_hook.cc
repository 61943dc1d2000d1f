#include "dlsym_hook.h"

#include <dlfcn.h>

#include <string_view>

#include <interpool/errors.h>
#include "../interpose/got_patching.h"

namespace interpool {
namespace {

// Written by prepare_dlsym_hook.
std::string prefix;
void* own_python = nullptr;
void* program = nullptr;

void* lookup(void* handle, const char* name) {
  const std::string_view wanted = name;
  if (!wanted.starts_with("Py") && !wanted.starts_with("_Py")) {
    return dlsym(handle, name);
  }
  // What the whole program shows is the host's Python: its objects and GIL are not ours.
  const bool anywhere = handle == program || handle == RTLD_DEFAULT;
  void* const where = anywhere ? own_python : handle;
  void* const found = dlsym(where, (prefix + name).c_str());
  return found != nullptr ? found : dlsym(where, name);
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
  patch_got(library, "dlsym", reinterpret_cast<void*>(&lookup));
}

bool calls_dlsym(const std::string& path) {
  const std::string_view file = std::string_view(path).substr(path.rfind('/') + 1);
  return file.starts_with("_ctypes.") || file.starts_with("_cffi_backend.");
}

}  // namespace interpool
