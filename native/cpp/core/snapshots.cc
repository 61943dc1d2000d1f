#include "snapshots.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace interpool {
namespace {

// A descriptor that closes itself.
struct File {
  explicit File(int descriptor) : fd(descriptor) {}
  ~File() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int release() { return std::exchange(fd, -1); }
  int fd;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw ArchiveError(path + " " + why);
}

// Beside the archive, as a copy may be a reflink there and its pages can go back to disk. In memory if the
// file system has no unnamed files.
int unnamed_file(const std::string& beside) {
  const auto folder = std::filesystem::path(beside).parent_path();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  return fd >= 0 ? fd : ::memfd_create("interpool-archive", MFD_CLOEXEC);
}

[[noreturn]] void refuse_shorter(const std::string& path) {
  refuse(path, "became shorter while it was being opened; another program is writing to it.");
}

void copy(int from, int to, size_t bytes, const std::string& path) {
  if (::ioctl(to, FICLONE, from) == 0) {
    struct stat cloned{};
    if (::fstat(to, &cloned) != 0 || static_cast<size_t>(cloned.st_size) < bytes) {
      refuse_shorter(path);  // the clone is of the file as it is now
    }
    return;
  }
  size_t done = 0;
  while (done < bytes) {
    ssize_t count = ::copy_file_range(from, nullptr, to, nullptr, bytes - done, 0);
    if (count < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)) {
      count = ::sendfile(to, from, nullptr, bytes - done);
    }
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      refuse(path, std::string("cannot be copied: ") + std::strerror(errno) +
                       ". There must be room for one more copy of the archive beside it.");
    }
    if (count == 0) {
      refuse_shorter(path);
    }
    done += static_cast<size_t>(count);
  }
}

template <typename Map>
void forget_expired(Map& map) {
  std::erase_if(map, [](const auto& item) { return item.second.expired(); });
}

template <typename Map, typename Key>
std::shared_ptr<const Snapshot> alive(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : found->second.lock();
}

}  // namespace

// While it lives, no other thread copies the file in that state. Its maker holds the lock; its end takes it.
class Snapshots::Copying {
 public:
  Copying(Snapshots& owner, const Identity& identity)
      : owner_(owner), place_(owner.copying_.insert(identity).first) {}
  ~Copying() {
    {
      const std::lock_guard lock(owner_.mutex_);
      owner_.copying_.erase(place_);
    }
    owner_.copied_.notify_all();
  }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;

 private:
  Snapshots& owner_;
  const std::set<Identity>::iterator place_;
};

std::shared_ptr<const Snapshot> Snapshots::open(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    if (auto known = alive(by_path_, path)) {
      return known;
    }
  }
  auto snapshot = take(path);
  const std::lock_guard lock(mutex_);
  // The file may have changed between two callers' copies: the path means what the first of them took.
  if (auto known = alive(by_path_, path)) {
    return known;
  }
  by_path_[path] = snapshot;
  return snapshot;
}

std::shared_ptr<const Snapshot> Snapshots::find(uint64_t number, const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (auto known = alive(by_number_, number)) {
    return known;
  }
  refuse(path, "is closed: its Package is gone. Keep the Package as long as its objects are used.");
}

std::shared_ptr<const Snapshot> Snapshots::take(const std::string& path) {
  // Not blocking, for a pipe would never come.
  const File source(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (source.fd < 0) {
    refuse(path, std::string("cannot be opened: ") + std::strerror(errno) + ".");
  }
  struct stat info{};
  if (::fstat(source.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    refuse(path, "is not a file; a hermetic archive is a single file made by `interpool pack`.");
  }
  if (info.st_size == 0) {
    refuse(path, "is empty; it was probably cut off while being copied.");
  }
  const Identity identity{info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  std::unique_lock lock(mutex_);
  // One that could not be copied is there for the next to try.
  copied_.wait(lock, [&] { return !copying_.contains(identity); });
  forget_expired(by_file_);
  forget_expired(by_path_);
  forget_expired(by_number_);
  if (auto known = alive(by_file_, identity)) {
    return known;
  }
  const Copying here(*this, identity);
  lock.unlock();
  File target(unnamed_file(path));
  if (target.fd < 0) {
    refuse(path, std::string("cannot be copied: ") + std::strerror(errno) + ".");
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  copy(source.fd, target.fd, bytes, path);
  const std::lock_guard publishing(mutex_);
  auto snapshot = std::make_shared<const Snapshot>(target.fd, bytes, ++last_number_);
  target.release();
  by_file_[identity] = snapshot;
  by_number_[snapshot->number] = snapshot;
  return snapshot;
}

}  // namespace interpool
