// Lengths of time, as callers give them.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string>

#include <interpool/errors.h>

namespace interpool {

using Clock = std::chrono::steady_clock;

constexpr double kForever = 1e8;  // seconds; more overflows the clock

inline Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(count, kForever)));
}

inline double in_seconds(Clock::duration length) {
  return std::chrono::duration<double>(length).count();
}

// The shortest text that reads back as this number.
inline std::string number_text(double number) {
  std::array<char, 32> text{};
  const auto [end, _] = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), end};
}

// Throws ArgumentError, which calls it `what`.
inline void require_positive(const char* what, double count) {
  if (!(count > 0)) {
    throw ArgumentError(std::string(what) + " is a positive number of seconds, not " + number_text(count));
  }
}

// So many seconds from now, or now if they are negative. Throws ArgumentError, which calls
// them `what`, if they are no number.
inline Clock::time_point after(const char* what, double count) {
  if (std::isnan(count)) {
    throw ArgumentError(std::string(what) + " is a number of seconds, not " + number_text(count));
  }
  return Clock::now() + seconds(std::max(count, 0.0));
}

}  // namespace interpool
