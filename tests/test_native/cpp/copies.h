// Two interpreters' private copies of one library.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>

#include <array>
#include <stdexcept>

namespace interpool::testing {

struct Copy {
  explicit Copy(const char* file) {
    void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    lock = reinterpret_cast<decltype(lock)>(::dlsym(library, "copy_lock"));
    close = reinterpret_cast<decltype(close)>(::dlsym(library, "copy_close"));
    at_fork = reinterpret_cast<decltype(at_fork)>(::dlsym(library, "copy_at_fork"));
  }

  int (*lock)(int fd, int command, struct flock* record) = nullptr;
  int (*close)(int fd) = nullptr;
  int (*at_fork)(void (*before)(), void (*parent)(), void (*child)()) = nullptr;
};

// Of interpreters 1 and 2; they stay loaded.
inline const std::array<Copy, 2>& copies() {
  static const std::array<Copy, 2> both{Copy(FAKE_COPY_1), Copy(FAKE_COPY_2)};
  return both;
}

}  // namespace interpool::testing
