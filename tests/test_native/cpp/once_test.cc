// Work that one of many does for all: who does it, who waits, and who hears of it.
#include "seam/once.h"

#include <gtest/gtest.h>

#include "threads.h"

namespace interpool::testing {
namespace {

using Turn = Once::Turn;

// What `work` came to, done by `done` if nobody has: as an interpreter asks.
std::string ask(Once& once, const std::string& work,
                const std::function<std::optional<std::string>()>& done) {
  while (true) {
    const Once::Answer answer = once.begin(work, 1ms);
    if (answer.turn == Turn::kDone) return answer.result;
    if (answer.turn == Turn::kYours) {
      const auto result = done();
      once.end(work, result);
      if (result.has_value()) return *result;
    }
  }
}

TEST(OnceTest, ManyAskAndOneDoesIt) {
  for (int round = 0; round < 50; ++round) {
    Once once;
    std::atomic<int> times{0};
    together(8, [&](int) {
      const std::string result = ask(once, "work", [&]() -> std::optional<std::string> {
        ++times;
        std::this_thread::sleep_for(2ms);
        return "found";
      });
      EXPECT_EQ(result, "found");
    });
    EXPECT_EQ(times, 1);
  }
}

TEST(OnceTest, WhatFailedIsTheNextOnesToDo) {
  Once once;
  std::atomic<int> times{0};
  together(8, [&](int) {
    const std::string result = ask(once, "work", [&]() -> std::optional<std::string> {
      if (++times < 5) return std::nullopt;
      return "at last";
    });
    EXPECT_EQ(result, "at last");
  });
  EXPECT_EQ(times, 5);
}

TEST(OnceTest, WhoWaitsIsToldInTimeThatItIsStillBeingDone) {
  Once once;
  EXPECT_EQ(once.begin("work", 0ms).turn, Turn::kYours);
  EXPECT_EQ(once.begin("work", 5ms).turn, Turn::kBusy);
  EXPECT_EQ(once.begin("other work", 0ms).turn, Turn::kYours);
  once.end("work", "");
  const Once::Answer answer = once.begin("work", 0ms);
  EXPECT_EQ(answer.turn, Turn::kDone);
  EXPECT_EQ(answer.result, "");
}

TEST(OnceTest, WhoWaitsIsWokenAtOnce) {
  Once once;
  EXPECT_EQ(once.begin("work", 0ms).turn, Turn::kYours);
  std::thread waiter([&] { EXPECT_EQ(once.begin("work", 20s).result, "done"); });
  std::this_thread::sleep_for(5ms);
  const auto before = std::chrono::steady_clock::now();
  once.end("work", "done");
  waiter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
}

}  // namespace
}  // namespace interpool::testing
