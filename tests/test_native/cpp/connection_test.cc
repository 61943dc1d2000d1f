// One of TorchServe's connections: what is asked, what is answered, and how it ends.
#include "core/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <latch>
#include <limits>

#include "fake_interpreter.h"
#include "otf.h"
#include "sockets.h"

namespace interpool::testing {
namespace {

using Answer = Interpreter::Answer;

// A pool, and connections that it serves.
class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() : fakes_(2), done_(::eventfd(0, EFD_CLOEXEC)) {
    define([](const std::string&, const std::string&, const std::string& frame) {
      return Answer{"got " + frame, true};
    });
    pool_ = std::make_shared<Pool>(fakes_.all());
  }
  // A connection's thread uses the pool and `done_` until it has ended.
  ~ConnectionTest() override {
    for (const auto& connection : connections_) {
      connection->close();
      EXPECT_TRUE(connection->join(20.0));
    }
    EXPECT_TRUE(eventually([&] { return ended() == connections_.size(); }));
    ::close(done_);
  }

  // What `service.answer` does with a message; before the first connection.
  void define(const FakeInterpreter::Service& service) {
    for (auto& fake : fakes_) fake->serve("service", "answer", service);
  }
  std::shared_ptr<Connection> serve(SocketPair& pair, bool pinned = false) {
    auto connection = Connection::serve(pool_, std::make_shared<SocketWire>(pair.give_away()),
                                        Service{"service", "answer", "W-1", "model", pinned, {}}, done_);
    const std::lock_guard lock(mutex_);
    connections_.push_back(connection);
    return connection;
  }
  // Has the service answer with the number of its interpreter.
  void answer_where() {
    for (auto& fake : fakes_) {
      fake->serve("service", "answer",
                  [id = fake->id()](const std::string&, const std::string&, const std::string&) {
                    return Answer{std::to_string(id), true};
                  });
    }
  }
  // How many connections have reported their end.
  uint64_t ended() {
    pollfd ready{done_, POLLIN, 0};
    uint64_t count = 0;
    if (::poll(&ready, 1, 0) == 1) {
      EXPECT_EQ(::read(done_, &count, sizeof count), static_cast<ssize_t>(sizeof count));
    }
    return ended_ += count;
  }
  size_t leased() const {
    size_t count = 0;
    for (const Pool::Status& status : pool_->status()) count += status.state == Pool::State::kLeased ? 1 : 0;
    return count;
  }
  void expect_nothing_held() {
    EXPECT_EQ(leased(), 0U);
    for (auto& fake : fakes_) EXPECT_TRUE(eventually([&] { return fake->alive() == 0; }));
  }

  Fakes fakes_;
  std::shared_ptr<Pool> pool_;
  const int done_;
  uint64_t ended_ = 0;
  std::mutex mutex_;  // guards connections_
  std::vector<std::shared_ptr<Connection>> connections_;
};

TEST_F(ConnectionTest, StaysInOneInterpreterIfPinnedAndPinnedOnesSpread) {
  answer_where();
  std::vector<SocketPair> pairs(4);
  std::map<std::string, int> served;
  for (SocketPair& pair : pairs) {
    serve(pair, true);
    pair.write(otf::load("m"));
    const std::string home = pair.read(1);
    ++served[home];
    for (int message = 0; message < 3; ++message) {
      pair.write(otf::predict("1", "a"));
      EXPECT_EQ(pair.read(1), home);
    }
  }
  EXPECT_EQ(served, (std::map<std::string, int>{{"1", 2}, {"2", 2}}));
}

TEST_F(ConnectionTest, MovesWhenItsInterpreterIsRetiredAndStaysThere) {
  answer_where();
  SocketPair pair;
  const auto connection = serve(pair, true);
  pair.write(otf::load("m"));
  const std::string home = pair.read(1);
  pool_->retire(pool_->acquire("", std::nullopt, std::stoi(home)));
  pair.write(otf::predict("1", "a") + otf::predict("2", "a"));
  const std::string other = home == "1" ? "2" : "1";
  EXPECT_EQ(pair.read(2), other + other);
  pair.hang_up();
  EXPECT_TRUE(connection->join(20.0));
}

TEST_F(ConnectionTest, LeavesItsInterpreterToOthersWhenItEnds) {
  answer_where();
  for (int turn = 0; turn < 3; ++turn) {
    SocketPair pair;
    const auto connection = serve(pair, true);
    pair.write(otf::load("m"));
    EXPECT_EQ(pair.read(1), "1");  // the first with the fewest
    pair.hang_up();
    EXPECT_TRUE(connection->join(20.0));
  }
}

TEST_F(ConnectionTest, EndsQuietlyWhenItIsClosedWhileItWaits) {
  SocketPair pair;
  ::testing::internal::CaptureStderr();
  const auto connection = serve(pair);
  EXPECT_FALSE(connection->join(0.01));
  connection->close();
  EXPECT_TRUE(connection->join(20.0));
  connection->close();  // and once more does no harm
  EXPECT_EQ(pair.read(1), "");
  EXPECT_TRUE(eventually([&] { return ended() == 1; }));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ConnectionTest, EndsQuietlyWhenItIsClosedInsideAMessage) {
  SocketPair pair;
  ::testing::internal::CaptureStderr();
  const auto connection = serve(pair);
  pair.write(otf::load("m").substr(0, 5));
  connection->close();
  EXPECT_TRUE(connection->join(20.0));
  EXPECT_TRUE(eventually([&] { return ended() == 1; }));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ConnectionTest, LetsARunningCallFinishWhenItIsClosed) {
  std::latch running(1);
  std::latch go_on(1);
  std::atomic<bool> finished{false};
  define([&](const std::string&, const std::string&, const std::string&) {
    running.count_down();
    go_on.wait();
    finished = true;
    return Answer{"too late", true};
  });
  SocketPair pair;
  const auto connection = serve(pair);
  pair.write(otf::load("m"));
  running.wait();
  connection->close();
  EXPECT_EQ(pair.read(1), "");
  EXPECT_FALSE(connection->join(0.01));
  EXPECT_EQ(leased(), 1U);
  go_on.count_down();
  EXPECT_TRUE(connection->join(20.0));
  EXPECT_TRUE(finished);
  expect_nothing_held();
}

TEST_F(ConnectionTest, ReportsItsEndAlsoIfThereIsNoMemoryToLetItsServiceGo) {
  SocketPair pair;
  const auto connection = serve(pair, /*pinned=*/true);
  const std::string message = otf::load("m");
  pair.write(message);
  EXPECT_EQ(pair.read(4 + message.size()), "got " + message);
  for (auto& fake : fakes_) fake->no_memory = true;
  ::testing::internal::CaptureStderr();
  pair.hang_up();
  EXPECT_TRUE(connection->join(20.0));
  EXPECT_TRUE(eventually([&] { return ended() == 1; }));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "interpool: std::bad_alloc\n");
  EXPECT_EQ(leased(), 0U);
  for (auto& fake : fakes_) fake->close();  // what was not let go stays
}

TEST_F(ConnectionTest, EndsWhenThePoolIsClosed) {
  SocketPair pair;
  const auto connection = serve(pair);
  pool_->close();
  ::testing::internal::CaptureStderr();
  pair.write(otf::load("m"));
  EXPECT_EQ(pair.read(1), "");
  EXPECT_TRUE(eventually([&] { return ended() == 1; }));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("pool of interpreters is closed"),
            std::string::npos);
}

TEST_F(ConnectionTest, LeavesNoSocketOpenThatItDoesNotServe) {
  SocketPair pair;
  const Service service{"service", "answer", "W-1", "model", false, /*share=*/0};
  EXPECT_THROW(Connection::serve(pool_, std::make_shared<SocketWire>(pair.give_away()), service, done_),
               ArgumentError);
  pollfd end{pair.ours(), POLLIN, 0};
  ASSERT_EQ(::poll(&end, 1, 0), 1);
  EXPECT_EQ(pair.read(1), "");
}

TEST_F(ConnectionTest, IsWaitedForAsLongAsTheCallerLikes) {
  for (const double timeout : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    SocketPair pair;
    const auto connection = serve(pair);
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      pair.hang_up();
    });
    EXPECT_TRUE(connection->join(timeout)) << timeout;
    other.join();
  }
  SocketPair pair;
  const auto connection = serve(pair);
  for (const double timeout : {0.0, -1.0, -1e300, -std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(connection->join(timeout)) << timeout;
  }
  EXPECT_THROW(connection->join(std::numeric_limits<double>::quiet_NaN()), ArgumentError);
}

// An answer that hands out each request's own.
Answer success(const std::string& text) {
  return {otf::integer(200) + text, true};
}

// TorchServe puts what a worker that it stops is at back into the queue, answered or not.
TEST_F(ConnectionTest, FailsWhatWasAnsweredOnAConnectionThatHasEnded) {
  std::atomic<int> calls{0};
  define([&](const std::string&, const std::string&, const std::string&) {
    ++calls;
    return success("!");
  });
  const std::string request = otf::predict("fails what was answered", "a");
  SocketPair stopped;
  const auto connection = serve(stopped);
  stopped.write(otf::load("m") + request);
  EXPECT_EQ(stopped.read(10), otf::integer(200) + "!" + otf::integer(200) + "!");
  stopped.hang_up();
  EXPECT_TRUE(connection->join(20.0));
  SocketPair other;
  serve(other);
  ::testing::internal::CaptureStderr();
  other.write(otf::load("m") + request + otf::predict("another", "b"));
  EXPECT_EQ(other.read(9), otf::integer(200) + "!" + otf::integer(500));
  const std::string failure = other.read(4);
  const auto size = static_cast<size_t>(static_cast<uint8_t>(failure[3]));
  EXPECT_NE(other.read(size).find("ask again"), std::string::npos);
  EXPECT_EQ(other.read(9), otf::integer(-1) + otf::integer(200) + "!");
  EXPECT_EQ(calls, 4);
  EXPECT_NE(
      ::testing::internal::GetCapturedStderr().find("interpool: model: TorchServe has repeated requests"),
      std::string::npos);
}

TEST_F(ConnectionTest, AnswersAgainWhatItAnsweredItself) {
  define([](const std::string&, const std::string&, const std::string&) { return success("!"); });
  const std::string request = otf::predict("answers again", "a");
  SocketPair pair;
  serve(pair);
  pair.write(request + request);
  EXPECT_EQ(pair.read(10), otf::integer(200) + "!" + otf::integer(200) + "!");
}

TEST_F(ConnectionTest, AnswersWhatAnotherDidNotAnswerOrFailed) {
  define([](const std::string&, const std::string&, const std::string& frame) {
    if (frame.find("(failed)") != std::string::npos) return Answer{otf::integer(503) + "?", true};
    return success("!");
  });
  const std::string failed = otf::predict("was failed", "(failed)");
  SocketPair stopped;
  const auto connection = serve(stopped);
  stopped.write(failed);
  EXPECT_EQ(stopped.read(5), otf::integer(503) + "?");
  stopped.hang_up();
  EXPECT_TRUE(connection->join(20.0));
  SocketPair other;
  serve(other);
  other.write(failed);
  EXPECT_EQ(other.read(5), otf::integer(503) + "?");
}

TEST_F(ConnectionTest, AnswersWhatTorchServeHasNotRead) {
  define([](const std::string&, const std::string&, const std::string&) { return success("!"); });
  const std::string request = otf::predict("was not read", "a");
  SocketPair stopped;
  const auto connection = serve(stopped);
  stopped.write(request);
  pollfd answer{stopped.ours(), POLLIN, 0};
  EXPECT_EQ(::poll(&answer, 1, 20'000), 1);
  stopped.hang_up();
  EXPECT_TRUE(connection->join(20.0));
  SocketPair other;
  serve(other);
  other.write(request);
  EXPECT_EQ(other.read(5), otf::integer(200) + "!");
}

TEST_F(ConnectionTest, OfManyClientsEachGetsItsOwnAnswers) {
  constexpr int kClients = 12;
  const uint64_t seed = random_seed();
  ::testing::internal::CaptureStderr();  // those that hang up inside a message tell so
  together(kClients, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    SocketPair pair;
    const auto connection = serve(pair);
    for (int i = 0; i < 20; ++i) {
      const std::string message = otf::random_message(chance);
      // Answers come while the message is still on its way out, when it is a big one.
      std::thread writer([&] { pair.write_in_pieces(message, chance); });
      EXPECT_TRUE(pair.read(4 + message.size()) == "got " + message);
      writer.join();
    }
    if (me % 3 == 0) pair.write(otf::load("m").substr(0, 5));
    if (me % 3 == 1) connection->close();
    pair.hang_up();
    EXPECT_TRUE(connection->join(20.0));
  });
  EXPECT_TRUE(eventually([&] { return ended() == kClients; }));
  ::testing::internal::GetCapturedStderr();
  expect_nothing_held();
}

}  // namespace
}  // namespace interpool::testing
