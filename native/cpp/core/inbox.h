// What other threads have for an event loop.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace interpool {

// `mutex_` guards what stands below it and is a leaf lock. Any thread, any GIL.
template <typename Item>
class Inbox {
 public:
  // Throws std::system_error if there is no descriptor left.
  Inbox() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) {
      throw std::system_error(errno, std::generic_category(), "eventfd");
    }
  }
  ~Inbox() { ::close(fd_); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // An eventfd that is readable as long as there are items; the loop is woken once for all that have come.
  int fd() const { return fd_; }

  std::vector<Item> take() {
    uint64_t count = 0;
    // Before the items go: the thread that puts the next one wakes the loop.
    static_cast<void>(!::read(fd_, &count, sizeof count));
    std::vector<Item> items;
    const std::lock_guard lock(mutex_);
    items.swap(items_);
    return items;
  }

  void put(Item item) {
    bool is_first = false;
    {
      const std::lock_guard lock(mutex_);
      is_first = items_.empty();
      items_.push_back(std::move(item));
    }
    if (is_first) {
      const uint64_t one = 1;
      static_cast<void>(!::write(fd_, &one, sizeof one));
    }
  }

 private:
  const int fd_;
  std::mutex mutex_;
  std::vector<Item> items_;
};

}  // namespace interpool
