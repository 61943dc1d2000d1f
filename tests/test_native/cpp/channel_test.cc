// Connections without a socket: an event loop asks by channels, and no thread waits for a lease.
#include "core/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <latch>
#include <map>
#include <mutex>
#include <thread>

#include "core/connection.h"
#include "fake_interpreter.h"
#include "otf.h"
#include "threads.h"

namespace interpool::testing {
namespace {

using Answer = Interpreter::Answer;

// A pool that answers by channels, and the loop that asks.
class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() : fakes_(2), inbox_(std::make_shared<ChannelInbox>()), done_(::eventfd(0, EFD_CLOEXEC)) {
    define([](const std::string& worker, const std::string&, const std::string& frame) {
      return Answer{worker + " got " + frame, true};
    });
    pool_ = std::make_shared<Pool>(fakes_.all());
  }
  ~ChannelTest() override {
    for (const auto& [channel, connection] : opened_) {
      channel->close();
      EXPECT_TRUE(connection->join(20.0));
    }
    uint64_t count = 0;  // a connection's thread uses `done_` until it has said its end
    for (uint64_t ended = 0; ended < opened_.size() && ::read(done_, &count, sizeof count) > 0;) {
      ended += count;
    }
    for (auto& fake : fakes_) {
      EXPECT_TRUE(eventually([&] { return fake->alive() == 0; }));
    }
    ::close(done_);
  }

  void define(const FakeInterpreter::Service& service) {
    for (auto& fake : fakes_) {
      fake->serve("service", "answer", service);
    }
  }
  // One that has answered its load command.
  std::shared_ptr<Channel> open(const std::string& worker, const std::string& model = "model") {
    auto channel = Channel::open(inbox_, "L" + worker);
    opened_.emplace_back(
        channel,
        Connection::serve(pool_, channel, Service{"service", "answer", worker, model, false, {}}, done_));
    EXPECT_EQ(next(*channel).bytes, worker + " got L" + worker);
    return channel;
  }
  static void ask(Channel& channel, const std::string& message) {
    channel.ask(std::make_shared<const std::string>(message), {"request"});
  }
  Brought next(const Channel& channel) {
    auto& brought = brought_[channel.number()];
    while (brought.empty()) {
      pollfd ready{inbox_->fd(), POLLIN, 0};
      if (::poll(&ready, 1, 20'000) != 1) {
        ADD_FAILURE() << "nothing came";
        return {};
      }
      for (Brought& item : inbox_->take()) {
        brought_[item.channel].push_back(std::move(item));
      }
    }
    Brought first = std::move(brought.front());
    brought.pop_front();
    return first;
  }

  Fakes fakes_;
  const std::shared_ptr<ChannelInbox> inbox_;
  const int done_;
  std::shared_ptr<Pool> pool_;
  std::vector<std::pair<std::shared_ptr<Channel>, std::shared_ptr<Connection>>> opened_;
  std::map<int64_t, std::deque<Brought>> brought_;
};

TEST_F(ChannelTest, AnswersOneMessageAtATimeEvenIfMoreAreAsked) {
  std::atomic<int> inside{0};
  define([&](const std::string&, const std::string&, const std::string& frame) {
    EXPECT_EQ(++inside, 1);
    std::this_thread::yield();
    --inside;
    return Answer{frame, true};
  });
  const auto channel = Channel::open(inbox_, "L");
  opened_.emplace_back(
      channel,
      Connection::serve(pool_, channel, Service{"service", "answer", "w", "model", false, {}}, done_));
  for (int i = 0; i < 50; ++i) {
    ask(*channel, "I");
  }
  for (int i = 0; i < 51; ++i) {
    EXPECT_FALSE(next(*channel).ended);
  }
}

TEST_F(ChannelTest, IsAnsweredByAModelsOwnInterpretersOnceItHasSome) {
  Fakes own(1, 3);
  for (auto& fake : own) {
    fake->serve("service", "answer", [](const std::string&, const std::string&, const std::string&) {
      return Answer{"own", true};
    });
  }
  PoolOptions options;
  options.start = [&] { return own.all().front(); };
  pool_ = std::make_shared<Pool>(fakes_.all(), std::move(options));
  const auto channel = open("a");
  Interpreter& one = pool_->acquire("", 0.0);
  Interpreter& other = pool_->acquire("", 0.0);
  ask(*channel, "I1");
  pool_->isolate("model");
  EXPECT_EQ(next(*channel).bytes, "own");
  channel->close();
  EXPECT_TRUE(opened_.back().second->join(20.0));
  pool_->release(one);
  pool_->release(other);
  pool_->close();
  for (auto& fake : own) {
    EXPECT_TRUE(eventually([&] { return fake->alive() == 0; }));
  }
}

TEST_F(ChannelTest, EndsWhenThePoolIsClosedWhileItWaits) {
  const auto channel = open("a");
  Interpreter& one = pool_->acquire("", 0.0);
  Interpreter& other = pool_->acquire("", 0.0);
  ask(*channel, "I1");
  ::testing::internal::CaptureStderr();
  pool_->close();
  EXPECT_TRUE(next(*channel).ended);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("pool of interpreters is closed"),
            std::string::npos);
  pool_->release(one);
  pool_->release(other);
}

TEST_F(ChannelTest, AsksAnotherInterpreterIfOneDoesNotAnswer) {
  std::atomic<int> calls{0};
  define([&](const std::string&, const std::string&, const std::string& frame) {
    return ++calls % 2 == 0 ? Answer{"", true, true} : Answer{frame, true};
  });
  const auto channel = Channel::open(inbox_, "L");
  opened_.emplace_back(
      channel,
      Connection::serve(pool_, channel, Service{"service", "answer", "w", "model", false, {}}, done_));
  EXPECT_EQ(next(*channel).bytes, "L");
  for (int i = 0; i < 10; ++i) {
    ask(*channel, "I" + std::to_string(i));
    EXPECT_EQ(next(*channel).bytes, "I" + std::to_string(i));
  }
  EXPECT_EQ(pool_->models().at("model").counters.requests, 10U);
}

TEST_F(ChannelTest, EndsWhenACallIsGivenUp) {
  std::latch running(1);
  std::latch go_on(1);
  std::atomic<bool> stuck{false};
  define([&](const std::string&, const std::string&, const std::string& frame) {
    if (frame == "Istuck") {
      stuck = true;
      running.count_down();
      go_on.wait();
    }
    return Answer{frame, true};
  });
  const auto channel = Channel::open(inbox_, "L");
  const auto connection =
      Connection::serve(pool_, channel, Service{"service", "answer", "w", "model", false, {}}, done_);
  opened_.emplace_back(channel, connection);
  EXPECT_EQ(next(*channel).bytes, "L");
  ask(*channel, "Istuck");
  running.wait();
  EXPECT_TRUE(connection->running().has_value());
  EXPECT_TRUE(connection->give_up().has_value());
  EXPECT_TRUE(next(*channel).ended);
  EXPECT_EQ(pool_->instances().size(), 1U);
  go_on.count_down();
  EXPECT_TRUE(connection->join(20.0));
}

TEST_F(ChannelTest, GivesEachOfManyItsOwnAnswersBesideOthers) {
  std::vector<std::shared_ptr<Channel>> channels;
  for (int i = 0; i < 12; ++i) {
    channels.push_back(open("w" + std::to_string(i), "model-" + std::to_string(i % 3)));
  }
  std::atomic<bool> over{false};
  std::thread others([&] {  // leases that no channel asks for, and changes of shares
    for (int64_t i = 0; !over; ++i) {
      Interpreter& leased = pool_->acquire("other", std::nullopt);
      pool_->set_share("model-0", 1 + i % 2);
      pool_->release(leased);
    }
  });
  std::map<int64_t, int> asked;
  const auto message = [&](const Channel& channel) {
    return "I" + std::to_string(channel.number()) + "/" + std::to_string(asked[channel.number()]);
  };
  for (const auto& channel : channels) {
    ask(*channel, message(*channel));
  }
  for (int round = 0; round < 100; ++round) {
    for (size_t i = 0; i < channels.size(); ++i) {
      ASSERT_EQ(next(*channels[i]).bytes, "w" + std::to_string(i) + " got " + message(*channels[i]));
      ++asked[channels[i]->number()];
      ask(*channels[i], message(*channels[i]));
    }
  }
  over = true;
  others.join();
}

TEST_F(ChannelTest, ManyThatAreClosedInTheMiddleLeaveEveryInterpreterFree) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<Channel>> channels;
    for (int i = 0; i < 6; ++i) {
      channels.push_back(open(std::to_string(i)));
    }
    std::thread closing([&] {
      for (const auto& channel : channels) {
        channel->close();
      }
    });
    for (const auto& channel : channels) {
      ask(*channel, "I");
    }
    closing.join();
  }
  for (const auto& [channel, connection] : opened_) {
    EXPECT_TRUE(connection->join(20.0));
  }
  EXPECT_EQ(pool_->waiting(), 0U);
  Interpreter& one = pool_->acquire("", 20.0);
  Interpreter& other = pool_->acquire("", 20.0);
  pool_->release(one);
  pool_->release(other);
}

}  // namespace
}  // namespace interpool::testing
