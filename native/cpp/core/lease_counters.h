// What each model's leases and requests were: what only ever grows, for those who watch a pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace interpool {

// Upper bounds, in seconds, of a histogram; one more bucket has the rest.
inline constexpr std::array<double, 14> kTimeBounds{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                    0.5,   1,     2.5,  5,     10,   30,  60};

struct Times {
  double seconds = 0;                                      // all together
  std::array<uint64_t, kTimeBounds.size() + 1> buckets{};  // how many took how long

  void count(double took) {
    seconds += took;
    const auto bucket = std::lower_bound(kTimeBounds.begin(), kTimeBounds.end(), took);
    ++buckets[static_cast<size_t>(bucket - kTimeBounds.begin())];
  }
};

struct LeaseCounters {
  uint64_t leases = 0;
  Times waits;            // of all leases
  Times leased;           // of leases that have ended
  uint64_t requests = 0;  // that were answered
  uint64_t failed = 0;    // those among them whose batch was answered by an error
};

}  // namespace interpool
