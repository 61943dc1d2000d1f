// An interpreter's main thread, on which others leave work, and who does it while that thread cannot.
#include "slot/main_thread.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "threads.h"

namespace interpool::testing {
namespace {

// One for the process. In one test, as it is started and closed once.
TEST(MainThreadTest, DoesWhatIsLeftToItEvenIfAPieceLasts) {
  MainThread& thread = MainThread::get();
  EXPECT_FALSE(MainThread::is_here());
  std::thread::id main;
  thread.start([&] {
    main = std::this_thread::get_id();
    EXPECT_TRUE(MainThread::is_here());
  });

  // In turn, as long as nothing lasts.
  std::vector<int> done;  // by the main thread only
  std::atomic<int> count{0};
  for (int i = 0; i < 100; ++i) {
    thread.run_later([&, i] {
      done.push_back(i);
      ++count;
    });
  }
  ASSERT_TRUE(eventually([&] { return count == 100; }));

  // What work throws is reported, and ends nothing.
  ::testing::internal::CaptureStderr();
  thread.run_later([] { throw std::runtime_error("of the work's"); });
  thread.run_later([&] { ++count; });
  ASSERT_TRUE(eventually([&] { return count == 101; }));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "interpool: of the work's\n");

  // Many leave work, one piece of which lasts: the spare does the rest, and each piece is done once.
  constexpr int kGivers = 4;
  constexpr int kWorks = 200;
  std::atomic<bool> open{false};
  std::atomic<int> lasting{0};
  const auto last = [&] {
    ++lasting;
    open.wait(false);
    --lasting;
  };
  std::atomic<int> elsewhere{0};
  std::vector<std::atomic<int>> times(kGivers * kWorks);
  std::atomic<int> short_ones{0};
  together(kGivers, [&](int me) {
    for (int i = 0; i < kWorks; ++i) {
      if (me == 0 && i == 50) thread.run_later(last);
      thread.run_later([&, number = static_cast<size_t>(me * kWorks + i)] {
        EXPECT_TRUE(MainThread::is_here());
        elsewhere += std::this_thread::get_id() != main ? 1 : 0;
        ++times[number];
        ++short_ones;
      });
    }
  });
  EXPECT_TRUE(eventually([&] { return short_ones == kGivers * kWorks; }, 60s));
  EXPECT_EQ(lasting, 1);
  EXPECT_GT(elsewhere, 0);
  for (const auto& one : times) EXPECT_EQ(one, 1);

  // If two last, the rest waits for one of them.
  std::atomic<bool> done_behind{false};
  thread.run_later(last);
  thread.run_later([&] { done_behind = true; });
  EXPECT_TRUE(eventually([&] { return lasting == 2; }));
  EXPECT_FALSE(thread.close_if_idle());
  EXPECT_FALSE(done_behind);
  open = true;
  open.notify_all();
  EXPECT_TRUE(eventually([&] { return lasting == 0 && done_behind; }));

  // Closed, it waits for what is under way, and does nothing more.
  std::atomic<bool> begun{false};
  std::atomic<bool> ended{false};
  thread.run_later([&] {
    begun = true;
    std::this_thread::sleep_for(50ms);
    ended = true;
  });
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  thread.close();
  EXPECT_TRUE(ended);
  static std::atomic<bool> too_late{false};
  thread.run_later([] { too_late = true; });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(too_late);
}

}  // namespace
}  // namespace interpool::testing
