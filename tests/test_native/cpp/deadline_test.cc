// Calls with a time limit: who waits for them, what becomes of one that takes too long, and of its
// interpreter.
#include "core/deadline.h"

#include <gtest/gtest.h>

#include <latch>

#include "core/model_thread.h"
#include "fake_interpreter.h"
#include "threads.h"

namespace interpool::testing {
namespace {

using Interruption = Interpreter::Interruption;

// Blocks threads that wait until it is opened, at the latest when the test ends.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    is_open_ = true;
    is_open_.notify_all();
  }
  void wait() const { is_open_.wait(false); }

 private:
  std::atomic<bool> is_open_{false};
};

class DeadlineTest : public ::testing::TestWithParam<std::string> {
 protected:
  ~DeadlineTest() override {
    for (const auto& deadline : deadlines_) deadline->stop();
    // Calls that were given up still end, when their gates are opened.
    EXPECT_TRUE(eventually([&] { return under_way_ == 0; }));
    ModelThread::forget_all(fake_);
    EXPECT_TRUE(eventually([&] {
      return std::all_of(deadlines_.begin(), deadlines_.end(),
                         [](const auto& deadline) { return deadline.use_count() == 1; });
    }));  // its thread had the other
  }

  std::shared_ptr<Deadline> start(Deadline::Limits limits) {
    return deadlines_.emplace_back(Deadline::start(fake_, GetParam(), limits, [this] {
      ++given_up_;
      ModelThread::forget_all(fake_);  // as the pool does, which retires the interpreter
    }));
  }
  Deadline::Work counted(std::function<void()> work) {
    return [this, work = std::move(work)](WatchedCall& call) {
      ++under_way_;
      call.set_what("what is called");
      work();
      --under_way_;
    };
  }
  std::string message_of(Deadline& deadline, const Deadline::Work& work) {
    try {
      deadline.run(work);
    } catch (const CallTimeoutError& error) {
      return error.what();
    }
    return "";
  }

  std::atomic<int> under_way_{0};
  std::atomic<int> given_up_{0};
  FakeInterpreter fake_{1};
  std::vector<std::shared_ptr<Deadline>> deadlines_;
};

// On a thread of its own, or on its model's.
INSTANTIATE_TEST_SUITE_P(On, DeadlineTest, ::testing::Values("", "m"),
                         [](const auto& given) { return given.param.empty() ? "its_own" : "its_models"; });

TEST_P(DeadlineTest, RunsTheCallsOfManyOneAfterAnother) {
  const auto deadline = start({60, 60});
  int calls = 0;  // by one thread
  together(8, [&](int me) {
    for (int i = 0; i < 100; ++i) {
      if (me == 0 && i % 10 == 0) {
        EXPECT_THROW(deadline->run([](WatchedCall&) { throw RemoteError("ValueError", "no", ""); }),
                     RemoteError);
      }
      deadline->run(counted([&] { ++calls; }));
    }
  });
  deadline->run([&](WatchedCall&) { EXPECT_EQ(calls, 800); });
  EXPECT_FALSE(deadline->given_up());
}

TEST_P(DeadlineTest, GoesOnAfterACallThatComesBackWhenItIsInterrupted) {
  Gate* gate = nullptr;
  std::vector<std::thread> tellers;  // as an interpreter's main thread
  fake_.on_interrupt = [&](uint64_t, const FakeInterpreter::Report& report) {
    tellers.emplace_back([gate, report] {
      report({" in some line", true});
      gate->open();
    });
  };
  const auto deadline = start({0.01, 60});
  for (int i = 0; i < 3; ++i) {
    Gate until_interrupted;
    gate = &until_interrupted;
    const std::string message = message_of(*deadline, counted([&] { until_interrupted.wait(); }));
    EXPECT_NE(message.find("what is called in interpreter 1 took longer than its limit of 0.01 s"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("the session goes on"), std::string::npos) << message;
    EXPECT_NE(message.find("It was here: in some line"), std::string::npos) << message;
    for (std::thread& teller : tellers) teller.join();
    tellers.clear();
  }
  EXPECT_EQ(given_up_, 0);
}

TEST_P(DeadlineTest, GivesUpACallThatDoesNotComeBackAndAllThatWaitForIt) {
  const auto gate = std::make_shared<Gate>();
  std::latch begun(1);
  const auto deadline = start({0.2, 0.1});
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      begun.wait();
      EXPECT_THROW(deadline->run(counted([] { ADD_FAILURE() << "it ran behind a call that was given up"; })),
                   InterpreterRetiredError);
    });
  }
  const std::string message = message_of(*deadline, counted([&begun, gate] {
    begun.count_down();
    gate->wait();
  }));
  EXPECT_NE(message.find("did not come back within 0.1 s more"), std::string::npos) << message;
  EXPECT_NE(message.find("it is in native code that does not return"), std::string::npos) << message;
  EXPECT_EQ(given_up_, 1);
  EXPECT_TRUE(deadline->given_up());
  EXPECT_THROW(deadline->require(), InterpreterRetiredError);
  EXPECT_THROW(deadline->run(counted([] {})), InterpreterRetiredError);
  for (std::thread& other : others) other.join();
  gate->open();
}

TEST_P(DeadlineTest, RefusesCallsOnceItIsStopped) {
  const auto deadline = start({60, 60});
  std::atomic<int> ran{0};
  std::atomic<int> done{0};
  std::atomic<int> refused{0};
  together(8, [&](int me) {
    for (int i = 0; i < 50; ++i) {
      if (me == 0 && i == 20) deadline->stop();
      try {
        deadline->run(counted([&] { ++ran; }));
        ++done;
      } catch (const SessionClosedError&) {
        ++refused;
      }
    }
  });
  EXPECT_EQ(ran, done);
  EXPECT_EQ(done + refused, 400);
  EXPECT_GE(refused, 30);
}

TEST_P(DeadlineTest, MayBeStoppedWhileACallIsGivenUp) {
  for (int round = 0; round < 10; ++round) {
    const auto gate = std::make_shared<Gate>();
    const auto deadline = start({0.001, 0.004});
    together(3, [&](int me) {
      if (me == 2) {
        deadline->stop();
        return;
      }
      try {
        deadline->run(counted([gate] { gate->wait(); }));
      } catch (const Error&) {  // which one, is a race
      }
    });
    gate->open();
  }
}

}  // namespace
}  // namespace interpool::testing
