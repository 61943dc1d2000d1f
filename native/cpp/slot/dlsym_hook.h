// dlsym, as Python code in this interpreter means it. ctypes and cffi look up Py* names: this interpreter's
// own libpython has them under another name, and the host's as they are.
#pragma once

#include <string>

namespace interpool {

// `libpython`: the path of this interpreter's. Before Python starts; needs no GIL.
void prepare_dlsym_hook(const std::string& libpython, const std::string& prefix);

// Makes the loaded file's own calls of dlsym find them. Idempotent; needs no GIL, and no thread may run its
// code yet.
void hook_dlsym(void* library);

// Does the library of that file name look up names for Python code?
bool calls_dlsym(const std::string& file_name);

}  // namespace interpool
