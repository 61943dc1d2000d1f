// Which requests were answered on connections that have ended.
#include "core/answered_requests.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace interpool::testing {
namespace {

constexpr std::chrono::minutes kNotStuck{2};

TEST(AnsweredRequests, OfAConnectionThatEndsALittleLaterAreWaitedFor) {
  AnsweredRequests all;
  all.add({"a"});
  std::thread ending([&] { all.end({"a"}); });
  EXPECT_TRUE(all.repeats({"a"}, {}, kNotStuck));
  ending.join();
}

TEST(AnsweredRequests, OfAConnectionThatGoesOnAreNotWaitedForAnyLonger) {
  AnsweredRequests all;
  all.add({"a"});
  std::thread going_on([&] { all.remove({"a"}); });
  EXPECT_FALSE(all.repeats({"a"}, {}, kNotStuck));
  going_on.join();
}

// TorchServe's workflows try again what took too long, while the worker that was at it lives.
TEST(AnsweredRequests, OfAConnectionThatLivesOnAreNoRepetition) {
  AnsweredRequests all;
  all.add({"a"});
  EXPECT_FALSE(all.repeats({"a"}));
}

TEST(AnsweredRequests, AreKeptUpToANumber) {
  AnsweredRequests all;
  for (size_t number = 0; number < AnsweredRequests::kKept + 2; ++number) {
    all.add({std::to_string(number)});
    all.end({std::to_string(number)});
  }
  EXPECT_FALSE(all.repeats({"1"}));
  EXPECT_TRUE(all.repeats({"2"}));
}

}  // namespace
}  // namespace interpool::testing
