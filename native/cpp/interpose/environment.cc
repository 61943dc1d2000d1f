// glibc's getenv takes no lock, and libraries call it at any time (tzset, OpenMP, each
// Python's start), while glibc's setenv may move the array that it walks. In one Python, the GIL
// keeps the two apart. Here an array is never moved under its readers: a value is exchanged by one
// store; where there are more or fewer entries than before, a new array takes the old one's place,
// which is freed some time after everybody has left it. Entries are kept for ever, as glibc's are.
#include "environment.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "got_patching.h"
#include "interpreters.h"

namespace interpool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReaders{10};  // nobody takes as long to walk an array

class Environment {
 public:
  static Environment& get() {
    static auto* const environment = new Environment;  // threads may outlive static destructors
    return *environment;
  }

  void set(std::string_view name, std::string_view value, bool overwrite) {
    const std::lock_guard lock(mutex_);
    const size_t size = count();
    for (size_t i = 0; i < size; ++i) {
      if (names(environ[i], name)) {
        if (overwrite) {
          __atomic_store_n(&environ[i], entry(name, value), __ATOMIC_RELEASE);
        }
        return;
      }
    }
    char* const added = entry(name, value);
    if (environ != array_.get() || size + 1 >= capacity_) {
      exchange(2 * size + 16, [](const char*) { return true; });
    }
    // The array ends with zeros: a reader sees the end here, or the entry and the end behind it.
    __atomic_store_n(&environ[size], added, __ATOMIC_RELEASE);
  }

  void unset(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const size_t size = count();
    for (size_t i = 0; i < size; ++i) {
      if (names(environ[i], name)) {
        exchange(size + 16, [name](const char* other) { return !names(other, name); });
        return;
      }
    }
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    exchange(16, [](const char*) { return false; });
  }

 private:
  static size_t count() {
    size_t size = 0;
    while (environ != nullptr && environ[size] != nullptr) {
      ++size;
    }
    return size;
  }

  static bool names(const char* entry, std::string_view name) {
    return std::strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=';
  }

  char* entry(std::string_view name, std::string_view value) {
    std::string text(name);
    text.append("=").append(value);
    return const_cast<char*>(entries_.insert(std::move(text)).first->c_str());
  }

  template <typename Keep>
  void exchange(size_t capacity, const Keep& keep) {
    auto fresh = std::make_unique<char*[]>(capacity);
    size_t size = 0;
    for (size_t i = 0; environ != nullptr && environ[i] != nullptr; ++i) {
      if (keep(environ[i])) {
        fresh[size++] = environ[i];
      }
    }
    const auto now = Clock::now();
    while (!old_.empty() && now - old_.front().first > kReaders) {
      old_.pop_front();
    }
    old_.emplace_back(now, std::move(array_));
    array_ = std::move(fresh);
    capacity_ = capacity;
    __atomic_store_n(&environ, array_.get(), __ATOMIC_RELEASE);
  }

  std::mutex mutex_;  // a leaf lock; readers take none
  std::unique_ptr<char*[]> array_;
  size_t capacity_ = 0;
  std::set<std::string> entries_;
  std::deque<std::pair<Clock::time_point, std::unique_ptr<char*[]>>> old_;
};

bool is_name(const char* name) {
  return name != nullptr && *name != '\0' && std::strchr(name, '=') == nullptr;
}

template <typename Work>
int attempt(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

}  // namespace
}  // namespace interpool

using interpool::Environment;

extern "C" {

INTERPOOL_API int ip_setenv(const char* name, const char* value, int overwrite) {
  if (!interpool::is_name(name)) {
    errno = EINVAL;
    return -1;
  }
  return interpool::attempt([&] { Environment::get().set(name, value, overwrite != 0); });
}

INTERPOOL_API int ip_unsetenv(const char* name) {
  if (!interpool::is_name(name)) {
    errno = EINVAL;
    return -1;
  }
  return interpool::attempt([&] { Environment::get().unset(name); });
}

// What it is given is copied: nobody may change an entry under its readers.
INTERPOOL_API int ip_putenv(char* text) {
  const char* const end = std::strchr(text, '=');
  if (end == nullptr) {
    return ip_unsetenv(text);
  }
  return interpool::attempt(
      [&] { Environment::get().set({text, static_cast<size_t>(end - text)}, end + 1, true); });
}

INTERPOOL_API int ip_clearenv() {
  return interpool::attempt([&] { Environment::get().clear(); });
}

}  // extern "C"

namespace interpool {
namespace {

void guard(const char* file) {
  if (void* const library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD)) {
    patch_got(library, {{"setenv", reinterpret_cast<void*>(&ip_setenv)},
                        {"unsetenv", reinterpret_cast<void*>(&ip_unsetenv)},
                        {"putenv", reinterpret_cast<void*>(&ip_putenv)},
                        {"clearenv", reinterpret_cast<void*>(&ip_clearenv)}});
    dlclose(library);
  }
}

// As soon as this library is there: a program may have threads that change the environment while the first
// interpreter starts.
[[gnu::constructor]] void guard_at_once() {
  try {
    guard_environment();
  } catch (const std::exception&) {
    return;  // tried again, and told, when the first interpreter starts
  }
}

}  // namespace

void guard_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    guard(nullptr);  // the program itself
    const void* const python = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    Dl_info info{};
    link_map* map = nullptr;
    if (python != nullptr && dladdr1(python, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 &&
        map->l_name[0] != '\0') {
      guard(map->l_name);
    }
  });
}

}  // namespace interpool
