#include "cores.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace interpool {
namespace {

// By the scheduler's state of the thread. One that has ended is not, and nor is that of a call that was given
// up (watched_call.cc): others come before it.
bool is_runnable(int thread) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/stat", thread);
  const int fd = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  std::array<char, 256> text{};
  const ssize_t size = read(fd, text.data(), text.size());
  close(fd);
  // "tid (name) state ...", and a name may hold anything.
  const std::string_view line(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  const size_t name_end = line.rfind(')');
  return name_end != std::string_view::npos && name_end + 2 < line.size() && line[name_end + 2] == 'R' &&
         sched_getscheduler(thread) != SCHED_IDLE;
}

}  // namespace

size_t cores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) {
    return std::max(1U, std::thread::hardware_concurrency());
  }
  return static_cast<size_t>(CPU_COUNT(&mine));
}

size_t runnable_threads() {
  const auto self = static_cast<int>(syscall(SYS_gettid));
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) {
    return 0;
  }
  size_t count = 0;
  while (const dirent* entry = readdir(tasks)) {
    const auto thread = static_cast<int>(std::strtol(entry->d_name, nullptr, 10));  // "." and "..": 0
    if (thread > 0 && thread != self && is_runnable(thread)) {
      ++count;
    }
  }
  closedir(tasks);
  return count;
}

}  // namespace interpool
