// Lengths of time, as callers give them.
#pragma once

#include <algorithm>
#include <chrono>

namespace interpool {

using Clock = std::chrono::steady_clock;

constexpr double kForever = 1e8;  // seconds; more overflows the clock

inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(count, kForever)));
}

}  // namespace interpool
