// glibc's getenv takes no lock, and libraries call it at any time: tzset, OpenMP, each Python's start.
// glibc's setenv may move the array that getenv walks. In one Python, the GIL keeps the two apart. Here the
// array stays where it is. CPython 3.13's posix_spawn, for one, takes another array than the one it began
// with for its own, and frees it.
//
// Every change is one store to a place that a reader meets before or after. A value is exchanged. One more
// variable stands at the end. A variable that goes leaves no hole: its place has a repetition of another one,
// until there is a new one for it. So child processes may see one twice, with one value. Entries are kept for
// ever, as glibc's are.
#include "environment.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
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
#include <system_error>
#include <utility>

#include "got_patching.h"
#include "interpreters.h"

namespace interpool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReaders{10};  // no reader takes as long to walk an array
constexpr size_t kRoom = 4096;                // for variables more, before the array has to move

class Environment {
 public:
  static Environment& get() {
    static auto* const environment = new Environment;  // threads may outlive static destructors
    return *environment;
  }

  // Across a fork: the child has no other thread that could let go of it.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  // Takes the place of an array that is not this one's.
  void own() {
    const std::lock_guard lock(mutex_);
    owned();
  }

  void set(std::string_view name, std::string_view value, bool overwrite) {
    const std::lock_guard lock(mutex_);
    const size_t size = owned();
    char* const text = entry(name, value);
    bool there = false;
    for (size_t i = 0; i < size; ++i) {
      if (names(array_[i], name)) {
        if (!overwrite) {
          return;
        }
        store(i, text);
        there = true;  // and goes on, to its repetitions
      }
    }
    if (there) {
      return;
    }
    for (size_t i = 0; i < size; ++i) {
      if (is_repeated(i, size)) {  // the first: a reader past it has met it, or will meet the next
        store(i, text);
        return;
      }
    }
    if (size + 1 >= capacity_) {
      move(array_.get(), size);
    }
    // The array ends with zeros: a reader sees the end here, or the entry and the end behind it.
    store(size, text);
  }

  void unset(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const size_t size = owned();
    char* const* const entries = array_.get();
    char* const* const stays =
        std::find_if_not(entries, entries + size, [name](const char* text) { return names(text, name); });
    if (stays == entries + size) {
      remove_all(size);
      return;
    }
    for (size_t i = 0; i < size; ++i) {
      if (names(entries[i], name)) {
        // The entry before it, which readers have met already. No end moves: execve counts before it reads.
        store(i, i > 0 ? entries[i - 1] : *stays);
      }
    }
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    remove_all(owned());
  }

 private:
  static size_t count(char* const* entries) {
    size_t size = 0;
    while (entries != nullptr && entries[size] != nullptr) {
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

  // In this one's array: `environ` may lead to another one, if a library calls glibc's own setenv meanwhile.
  void store(size_t place, char* text) { __atomic_store_n(&array_[place], text, __ATOMIC_RELEASE); }

  void remove_all(size_t size) {
    for (; size > 0; --size) {
      store(size - 1, nullptr);
    }
  }

  // By what is there, as others' unsetenv may have moved entries in this array.
  bool is_repeated(size_t place, size_t size) const {
    return std::count(array_.get(), array_.get() + size, array_[place]) > 1;
  }

  // How many entries there are, in an array of this one's.
  size_t owned() {
    char* const* const there = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
    const size_t size = count(there);
    if (there == nullptr || there != array_.get()) {
      move(there, size);
    }
    return size;
  }

  // Into an array with more room.
  void move(char* const* entries, size_t size) {
    const size_t capacity = 2 * size + kRoom;
    auto fresh = std::make_unique<char*[]>(capacity);
    std::copy_n(entries, size, fresh.get());
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

// What it is given is copied: no code may change an entry under its readers.
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
    return;  // tried again, and reported, when the first interpreter starts
  }
}

}  // namespace

void own_environment() {
  Environment::get().own();
}

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
    // Last: what throws is tried again, and this must not be done twice.
    const auto lock = [] { Environment::get().lock(); };
    const auto unlock = [] { Environment::get().unlock(); };
    if (const int error = pthread_atfork(lock, unlock, unlock); error != 0) {
      throw std::system_error(error, std::generic_category(), "pthread_atfork");
    }
  });
}

}  // namespace interpool
