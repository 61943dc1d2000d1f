#include "at_work.h"

#include <array>
#include <atomic>

namespace interpool {
namespace {

constexpr size_t kCacheLine = 64;

// Interpreters are entered all the time: each counts in a line of its own.
struct alignas(kCacheLine) Count {
  std::atomic<int> threads{0};
};

std::array<Count, kMaxInterpreters> counts;

std::atomic<int>& count_of(InterpreterId id) noexcept {
  return counts[static_cast<size_t>(id)].threads;
}

}  // namespace

// All three read and write the count, and so have one order. Of a look and a beginning, the later one sees
// what was written before the earlier one.
void begin_work(InterpreterId id) noexcept {
  count_of(id).fetch_add(1, std::memory_order_acq_rel);
}

void end_work(InterpreterId id) noexcept {
  count_of(id).fetch_sub(1, std::memory_order_acq_rel);
}

bool is_at_work(InterpreterId id) noexcept {
  return count_of(id).fetch_add(0, std::memory_order_acq_rel) != 0;
}

}  // namespace interpool
