#include "load_sampler.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace interpool {
namespace {

constexpr size_t kWindow = 10;   // samples
constexpr double kMostly = 0.5;  // of the leases
constexpr int kCensuses = 8;     // of all threads, if most leases sleep
constexpr auto kBetween = std::chrono::milliseconds(2);
constexpr double kUnusedCores = 0.85;  // of the machine's: above this, none is unused

// Runs, or is ready to run. A thread that has ended does not.
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
  return name_end != std::string_view::npos && name_end + 2 < line.size() && line[name_end + 2] == 'R';
}

// Threads of this process that run or are ready to, except the calling one.
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

}  // namespace

bool LoadSampler::is_busy(const Lease& lease) {
  const bool called = visits_[lease.interpreter] != lease.visits;
  visits_[lease.interpreter] = lease.visits;
  if (lease.inside != 0) {
    return is_runnable(lease.inside);
  }
  // Between two calls: one of many short ones, or of a caller that does something else.
  return called || is_runnable(lease.holder);
}

void LoadSampler::sample(const std::vector<Lease>& leases) {
  for (const Lease& lease : leases) {
    busy_ += is_busy(lease) ? 1 : 0;
  }
  seen_ += leases.size();
  ++samples_;
}

bool LoadSampler::is_full() const {
  return samples_ >= kWindow;
}

bool LoadSampler::waits_elsewhere() {
  const bool asleep = static_cast<double>(busy_) < kMostly * static_cast<double>(seen_);
  samples_ = busy_ = seen_ = 0;
  if (!asleep) {
    return false;
  }
  size_t runnable = 0;
  for (int i = 0; i < kCensuses; ++i) {
    std::this_thread::sleep_for(kBetween);
    runnable += runnable_threads();
  }
  return static_cast<double>(runnable) < kUnusedCores * static_cast<double>(cores_ * kCensuses);
}

}  // namespace interpool
