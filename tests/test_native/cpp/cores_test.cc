// Which threads use cores.
#include <gtest/gtest.h>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/cores.h"
#include "threads.h"

namespace interpool::testing {
namespace {

TEST(Cores, AThreadThatComputesCountsUnlessItsCallWasGivenUp) {
  std::vector<std::atomic<int>> numbers(16);
  std::atomic<bool> over{false};
  std::vector<std::jthread> threads;
  for (auto& number : numbers) {
    threads.emplace_back([&] {
      number = static_cast<int>(syscall(SYS_gettid));
      while (!over) std::this_thread::yield();
    });
  }
  EXPECT_TRUE(eventually([&] { return runnable_threads() >= numbers.size(); }));
  for (const auto& number : numbers) EXPECT_TRUE(eventually([&] { return number != 0; }));
  const sched_param none{};
  for (const auto& number : numbers) {  // as WatchedCall::give_up() does
    EXPECT_EQ(sched_setscheduler(number, SCHED_IDLE, &none), 0);
  }
  EXPECT_LT(runnable_threads(), numbers.size());
  over = true;
}

}  // namespace
}  // namespace interpool::testing
