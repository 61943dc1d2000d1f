// Work that one of many does for all: who does it, who waits, and who hears of it.
#include "seam/once.h"

#include <gtest/gtest.h>

#include "threads.h"

namespace interpool::testing {
namespace {

using Turn = Once::Turn;

TEST(OnceTest, ACallerHearsInTimeThatTheWorkIsStillBeingDone) {
  Once once;
  const Once::Answer mine = once.begin("work", 0ms);
  EXPECT_EQ(mine.turn, Turn::kYours);
  EXPECT_EQ(once.begin("work", 5ms).turn, Turn::kBusy);
  EXPECT_EQ(once.begin("other work", 0ms).turn, Turn::kYours);
  once.end("work", mine.number, "");
  const Once::Answer answer = once.begin("work", 0ms);
  EXPECT_EQ(answer.turn, Turn::kDone);
  EXPECT_EQ(answer.result, "");
}

TEST(OnceTest, ACallerThatWaitsIsWokenAtOnce) {
  Once once;
  const Once::Answer mine = once.begin("work", 0ms);
  EXPECT_EQ(mine.turn, Turn::kYours);
  std::thread waiter([&] { EXPECT_EQ(once.begin("work", 20s).result, "done"); });
  std::this_thread::sleep_for(5ms);
  const auto before = std::chrono::steady_clock::now();
  once.end("work", mine.number, "done");
  waiter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
}

TEST(OnceTest, ATurnThatNeverEndsKeepsNoOtherCallerFromTheWork) {
  Once once;
  const Once::Answer lost = once.begin("work", 0ms);
  EXPECT_EQ(lost.turn, Turn::kYours);
  EXPECT_EQ(once.begin("work", 0ms, 1h).turn, Turn::kBusy);
  const Once::Answer next = once.begin("work", 0ms, 0ms);
  EXPECT_EQ(next.turn, Turn::kYours);
  EXPECT_NE(next.number, lost.number);
  EXPECT_EQ(once.begin("work", 0ms, 1h).turn, Turn::kBusy);  // one at a time takes it over
  once.end("work", next.number, "done");
  EXPECT_EQ(once.begin("work", 0ms).result, "done");
}

TEST(OnceTest, ATurnThatHasEndedOrPassedOnEndsNoOther) {
  Once once;
  const uint64_t first = once.begin("work", 0ms).number;
  once.end("work", 0, std::nullopt);  // no caller's
  EXPECT_EQ(once.begin("work", 0ms).turn, Turn::kBusy);
  const uint64_t second = once.begin("work", 0ms, 0ms).number;
  once.end("work", first, std::nullopt);
  EXPECT_EQ(once.begin("work", 0ms).turn, Turn::kBusy);
  once.end("work", first, "done after all");
  once.end("work", second, std::nullopt);
  once.end("work", second, "too late");
  EXPECT_EQ(once.begin("work", 0ms).result, "done after all");
}

}  // namespace
}  // namespace interpool::testing
