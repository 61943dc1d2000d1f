// Record locks of files (fcntl), so that interpreters exclude each other.
//
// Such a lock is the process's. A database that is linked into an extension module knows of its own locks,
// but not of another copy's. Both would have the file to themselves, and lose data. So a slot's locks are
// made with open-file-description locks, on a description that is the slot's alone. For a slot these do what
// POSIX says of a process. They are the same for all descriptors, and all go when the slot closes any
// descriptor of the file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <tuple>

#include "private_copies.h"

namespace interpool {
namespace {

// A description of the file that belongs to one slot; its locks go with it.
struct Description {
  explicit Description(int file) : fd(file) {}
  ~Description() {
    struct flock all{};
    all.l_type = F_UNLCK;
    ::fcntl(fd, F_OFD_SETLK, &all);  // a child of the process may hold the description open
    ::close(fd);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  const int fd;
};

using Key = std::tuple<dev_t, ino_t, InterpreterId>;

struct Locks {
  const pid_t process = getpid();
  // A leaf lock. The dynamic linker's, which owner_of_code() takes, is never taken under it: a thread that
  // loads a library has that, and may close a file.
  std::mutex mutex;
  std::map<Key, std::shared_ptr<Description>> all;
  std::atomic<size_t> size{0};  // read without the lock
};

Locks& locks() {
  static auto* const descriptions = new Locks;
  return *descriptions;
}

// A child that is about to start another program (vfork: in its parent's memory) has none of these locks,
// and what it closes ends none.
bool in_child() {
  return getpid() != locks().process;
}

std::shared_ptr<Description> open_again(int fd) {
  const std::string name = "/proc/self/fd/" + std::to_string(fd);
  int file = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  }
  return file < 0 ? nullptr : std::make_shared<Description>(file);
}

// Null if the slot has no lock on the file and `make` is false, or if it cannot have any.
std::shared_ptr<Description> description_of(const Key& key, int fd, bool make) {
  Locks& known = locks();
  const std::lock_guard lock(known.mutex);
  const auto found = known.all.find(key);
  if (found != known.all.end() || !make) {
    return found != known.all.end() ? found->second : nullptr;
  }
  auto made = open_again(fd);
  if (made != nullptr) {
    known.all.emplace(key, made);
    known.size = known.all.size();
  }
  return made;
}

int fail(int error) {
  errno = error;
  return -1;
}

int lock_record(int fd, int command, struct flock* record, const void* caller) {
  struct stat file{};
  const int flags = ::fcntl(fd, F_GETFL);
  const InterpreterId slot = owner_of_code(caller);
  if (flags < 0 || record == nullptr || slot <= kHost || in_child() || ::fstat(fd, &file) != 0 ||
      !S_ISREG(file.st_mode)) {
    return ::fcntl(fd, command, record);
  }
  const int mode = flags & O_ACCMODE;
  if (command != F_GETLK &&
      ((record->l_type == F_WRLCK && mode == O_RDONLY) || (record->l_type == F_RDLCK && mode == O_WRONLY))) {
    return fail(EBADF);
  }
  const bool sets = command != F_GETLK && record->l_type != F_UNLCK;
  const auto own = description_of({file.st_dev, file.st_ino, slot}, fd, sets);
  if (own == nullptr && sets) {
    return fail(ENOLCK);
  }
  if (own == nullptr && command != F_GETLK) {
    return 0;  // nothing to unlock
  }
  struct flock given = *record;
  given.l_pid = 0;
  if (given.l_whence == SEEK_CUR) {  // of the caller's descriptor, not of ours
    given.l_start += ::lseek(fd, 0, SEEK_CUR);
    given.l_whence = SEEK_SET;
  }
  const int same = command == F_SETLK ? F_OFD_SETLK : command == F_SETLKW ? F_OFD_SETLKW : F_OFD_GETLK;
  const int result = ::fcntl(own != nullptr ? own->fd : fd, same, &given);
  if (result == 0 && command == F_GETLK) {
    *record = given;
  }
  return result;
}

int control(int fd, int command, void* argument, const void* caller) {
  if (command == F_SETLK || command == F_SETLKW || command == F_GETLK) {
    try {
      return lock_record(fd, command, static_cast<struct flock*>(argument), caller);
    } catch (const std::bad_alloc&) {  // the caller is C code
      return fail(ENOLCK);
    }
  }
  return ::fcntl(fd, command, argument);
}

// By any slot.
bool is_locked(const struct stat& file) {
  Locks& known = locks();
  const std::lock_guard lock(known.mutex);
  const auto any = known.all.lower_bound({file.st_dev, file.st_ino, kHost});
  return any != known.all.end() && std::get<0>(any->first) == file.st_dev &&
         std::get<1>(any->first) == file.st_ino;
}

void forget_locks(int fd, const void* caller) {
  struct stat file{};
  if (in_child() || ::fstat(fd, &file) != 0 || !is_locked(file)) {
    return;
  }
  const Key key{file.st_dev, file.st_ino, owner_of_code(caller)};
  std::shared_ptr<Description> gone;
  Locks& known = locks();
  const std::lock_guard lock(known.mutex);
  const auto found = known.all.find(key);
  if (found != known.all.end()) {
    gone = std::move(found->second);
    known.all.erase(found);
    known.size = known.all.size();
  }
}

}  // namespace
}  // namespace interpool

using namespace interpool;

extern "C" {

INTERPOOL_API int ip_fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return control(fd, command, argument, __builtin_return_address(0));
}

INTERPOOL_API int ip_fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return control(fd, command, argument, __builtin_return_address(0));
}

INTERPOOL_API int ip_close(int fd) {
  // The standard streams are the process's: what a model opens over one of them must not close it.
  if (fd >= 0 && fd <= STDERR_FILENO && !in_child()) {
    return 0;
  }
  if (locks().size.load(std::memory_order_relaxed) != 0) {
    const int before = errno;
    forget_locks(fd, __builtin_return_address(0));
    errno = before;
  }
  return ::close(fd);
}

}  // extern "C"
