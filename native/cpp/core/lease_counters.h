// What leases cost those who waited for them, for each model: what only ever grows, for
// whoever watches a pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace interpool {

// Upper bounds, in seconds, of a histogram of waiting times; one more bucket has the rest.
inline constexpr std::array<double, 14> kWaitBounds{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                    0.5,   1,     2.5,  5,     10,   30,  60};

struct LeaseCounters {
  uint64_t leases = 0;
  double waited = 0;                                     // seconds, all leases together
  double leased = 0;                                     // seconds, of leases that have ended
  std::array<uint64_t, kWaitBounds.size() + 1> waits{};  // leases by how long they waited

  void count(double seconds) {
    ++leases;
    waited += seconds;
    const auto bucket = std::lower_bound(kWaitBounds.begin(), kWaitBounds.end(), seconds);
    ++waits[static_cast<size_t>(bucket - kWaitBounds.begin())];
  }
};

// By the name under which an interpreter is leased. Not thread-safe: its pool's mutex guards it.
using LeaseCountersByModel = std::map<std::string, LeaseCounters>;

}  // namespace interpool
