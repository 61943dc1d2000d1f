// Do the threads that lease interpreters want the CPU, or do they wait for something
// else? Asked again and again, a few milliseconds apart, by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace interpool {

// The signal is the scheduler's state of threads: asleep, or runnable, which counts the wait for a core as
// work. CPU time would take a crowded machine, or a quota, for idleness. First the threads inside leased
// interpreters are looked at. If most of them sleep, all threads of the process are. A lease that sleeps
// leaves no core unused while threads that its model started compute.
class LoadSampler {
 public:
  struct Lease {
    int interpreter = 0;
    int inside = 0;       // the thread that is in it, by the kernel's number; 0: none
    uint64_t visits = 0;  // how often one has entered
    int holder = 0;       // the thread that leased it
  };

  explicit LoadSampler(size_t cores) : cores_(cores) {}

  void sample(const std::vector<Lease>& leases);
  // Are there enough samples to tell?
  bool is_full() const;
  // Have most of the leases been asleep, and are cores unused? To say yes it takes some
  // ten milliseconds more. Starts over.
  bool waits_elsewhere();

 private:
  bool is_busy(const Lease& lease);

  const size_t cores_;
  size_t samples_ = 0;
  size_t busy_ = 0;
  size_t seen_ = 0;
  std::map<int, uint64_t> visits_;  // at the last sample, by interpreter
};

}  // namespace interpool
