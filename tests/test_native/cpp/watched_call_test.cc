// Calls that another thread watches: which of its end and its being given up comes first, and what is said of
// it.
#include "core/watched_call.h"

#include <gtest/gtest.h>

#include "fake_interpreter.h"
#include "threads.h"

namespace interpool::testing {
namespace {

class WatchedCallTest : public ::testing::Test {
 protected:
  std::shared_ptr<WatchedCall> make() { return std::make_shared<WatchedCall>(fake_); }

  FakeInterpreter fake_{1};
};

TEST_F(WatchedCallTest, RunsUntilItEnds) {
  const auto call = make();
  EXPECT_NE(call->number(), make()->number());
  EXPECT_TRUE(call->running().has_value());  // it is about to begin
  EXPECT_TRUE(call->begin());
  EXPECT_GE(call->running().value(), 0.0);
  EXPECT_FALSE(call->ends_within(0.01));
  EXPECT_TRUE(call->end());
  EXPECT_FALSE(call->running().has_value());
  EXPECT_TRUE(call->ends_within(0));
  EXPECT_FALSE(call->give_up());
}

TEST_F(WatchedCallTest, IsNotBegunAfterItWasGivenUp) {
  const auto call = make();
  EXPECT_TRUE(call->give_up());
  EXPECT_FALSE(call->give_up());
  EXPECT_FALSE(call->running().has_value());
  EXPECT_FALSE(call->begin());
  EXPECT_FALSE(call->end());
}

TEST_F(WatchedCallTest, EndsOrIsGivenUpAndNeverBoth) {
  for (int round = 0; round < 200; ++round) {
    const auto call = make();
    std::atomic<int> ended{0};
    std::atomic<int> given_up{0};
    together(3, [&](int me) {
      if (me > 0) {
        given_up += call->give_up() ? 1 : 0;
      } else {
        call->begin();
        ended += call->end() ? 1 : 0;
      }
    });
    EXPECT_EQ(ended + given_up, 1);
  }
}

TEST_F(WatchedCallTest, CountsItsLimitFromItsBeginning) {
  const auto call = make();
  std::thread thread([&] {
    std::this_thread::sleep_for(100ms);
    call->begin();
    call->end();
  });
  EXPECT_TRUE(call->ends_within(0.01));  // it was in line until then
  thread.join();
}

}  // namespace
}  // namespace interpool::testing
