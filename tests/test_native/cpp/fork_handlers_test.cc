// What private copies register with pthread_atfork: run around their own interpreter's forks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "copies.h"
#include "interpose/interpreters.h"
#include "threads.h"

namespace interpool::testing {
namespace {

// What ran, by interpreter; and of the fork that a thread makes, in which order.
std::array<std::atomic<int>, 3> prepared;
std::array<std::atomic<int>, 3> returned;
thread_local std::string order;

template <InterpreterId id, char name>
int at_fork() {
  return copies()[id - 1].at_fork(
      [] {
        ++prepared[id];
        order += name;
      },
      [] {
        ++returned[id];
        order += name;
      },
      [] { order += name; });
}

// A fork of that interpreter's; the child's status says whether exactly its handlers ran, in order.
int fork_in(InterpreterId id, const std::string& expected) {
  const InterpreterId before = enter_interpreter(id);
  order.clear();
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(order == expected ? 0 : 1);
  }
  enter_interpreter(before);
  EXPECT_EQ(order, expected);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

// In one test, as handlers stay.
TEST(ForkHandlersTest, RunAroundForksOfTheirOwnInterpretersOnly) {
  EXPECT_EQ((at_fork<1, 'a'>()), 0);
  EXPECT_EQ((at_fork<1, 'b'>()), 0);
  EXPECT_EQ((at_fork<2, 'x'>()), 0);
  EXPECT_EQ(copies()[0].at_fork(nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(fork_in(1, "baab"), 0);  // the last one first before it, the first one first behind it
  EXPECT_EQ(fork_in(2, "xx"), 0);
  EXPECT_EQ(fork_in(kNone, ""), 0);
  EXPECT_EQ(prepared[1], 2);
  EXPECT_EQ(prepared[2], 1);

  // Two fork at once, while others register more.
  constexpr int kForks = 20;
  together(4, [&](int me) {
    if (me >= 2) {
      for (int i = 0; i < 200; ++i) copies()[0].at_fork(nullptr, nullptr, nullptr);
      return;
    }
    for (int i = 0; i < kForks; ++i) {
      EXPECT_EQ(me == 0 ? fork_in(1, "baab") : fork_in(2, "xx"), 0);
    }
  });
  EXPECT_EQ(prepared[1], 2 + 2 * kForks);
  EXPECT_EQ(returned[1], 2 + 2 * kForks);
  EXPECT_EQ(prepared[2], 1 + kForks);
  EXPECT_EQ(returned[2], 1 + kForks);
}

}  // namespace
}  // namespace interpool::testing
