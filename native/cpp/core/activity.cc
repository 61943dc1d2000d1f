#include "activity.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <string_view>

namespace interpool {
namespace {

constexpr size_t kWindow = 10;         // samples
constexpr double kMostly = 0.5;        // of the leases
constexpr double kUnusedCores = 0.85;  // of the machine's: above this, none is to spare

double process_cpu() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs, or would if it were given a core. A thread that has ended does not.
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

}  // namespace

bool Activity::is_busy(const Lease& lease) {
  const bool called = visits_[lease.interpreter] != lease.visits;
  visits_[lease.interpreter] = lease.visits;
  if (lease.inside != 0) {
    return is_runnable(lease.inside);
  }
  // Between two calls: one of many short ones, or of a caller that does something else.
  return called || is_runnable(lease.holder);
}

void Activity::sample(const std::vector<Lease>& leases) {
  if (samples_ == 0) {
    since_ = std::chrono::steady_clock::now();
    cpu_since_ = process_cpu();
  }
  for (const Lease& lease : leases) {
    busy_ += is_busy(lease) ? 1 : 0;
  }
  seen_ += leases.size();
  ++samples_;
}

bool Activity::is_full() const {
  return samples_ >= kWindow;
}

bool Activity::waits_elsewhere() {
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - since_;
  const double cpu = process_cpu() - cpu_since_;
  const bool asleep = static_cast<double>(busy_) < kMostly * static_cast<double>(seen_);
  samples_ = busy_ = seen_ = 0;
  return asleep && cpu < kUnusedCores * static_cast<double>(cores_) * wall.count();
}

}  // namespace interpool
