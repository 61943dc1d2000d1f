// An interpreter's main thread, on which others leave work, and who does it while that thread cannot.
#include "slot/main_thread.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "threads.h"

namespace interpool::testing {
namespace {

// One for the process. In one test, as it is started and closed once.
TEST(MainThreadTest, DoesWhatIsLeftToItWhateverHoldsItUp) {
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

  // What work throws is told, and ends nothing.
  ::testing::internal::CaptureStderr();
  thread.run_later([] { throw std::runtime_error("of the work's"); });
  thread.run_later([&] { ++count; });
  ASSERT_TRUE(eventually([&] { return count == 101; }));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "interpool: of the work's\n");

  // Many leave work, some of which lasts: a relief each does the rest, and each piece is done once.
  constexpr int kGivers = 4;
  constexpr int kWorks = 200;
  constexpr int kLasting = 2;
  std::atomic<bool> open{false};
  std::atomic<int> lasting{0};
  std::atomic<int> elsewhere{0};
  std::vector<std::atomic<int>> times(kGivers * kWorks);
  std::atomic<int> short_ones{0};
  together(kGivers, [&](int me) {
    for (int i = 0; i < kWorks; ++i) {
      const auto number = static_cast<size_t>(me * kWorks + i);
      if (me < kLasting && i == 50) {
        thread.run_later([&, number] {
          ++times[number];
          ++lasting;
          open.wait(false);
          --lasting;
        });
      } else {
        thread.run_later([&, number] {
          EXPECT_TRUE(MainThread::is_here());
          elsewhere += std::this_thread::get_id() != main ? 1 : 0;
          ++times[number];
          ++short_ones;
        });
      }
    }
  });
  EXPECT_TRUE(eventually([&] { return short_ones == kGivers * kWorks - kLasting; }, 60s));
  EXPECT_EQ(lasting, kLasting);
  EXPECT_GT(elsewhere, 0);
  open = true;
  open.notify_all();
  EXPECT_TRUE(eventually([&] { return lasting == 0; }));
  for (const auto& one : times) EXPECT_EQ(one, 1);

  // Work that waits for the GIL, and gets it.
  std::atomic<bool> waited{false};
  thread.run_later([&] {
    thread.begin_wait();
    thread.end_wait();
    waited = true;
  });
  EXPECT_TRUE(eventually([&] { return waited.load(); }));
  thread.begin_wait();  // nothing, on this thread
  thread.end_wait();

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
