// Reaches the definition that an interposed function hides.
#pragma once

#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace interpool {

// `library` is the SONAME of one that is loaded already. Throws c10::Error when
// this torch does not have the symbol: then it is not a torch we were built for.
template <typename Function>
Function original(const char* mangled, const char* library = "libtorch_cpu.so") {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  void* symbol = handle == nullptr ? nullptr : dlsym(handle, mangled);
  if (handle != nullptr) {
    dlclose(handle);
  }
  TORCH_CHECK(symbol != nullptr, "interpool: ", library, " does not define ", mangled,
              ". interpool was built for another version of torch; reinstall it.");
  return reinterpret_cast<Function>(symbol);
}

}  // namespace interpool
