// Leases of one interpreter, and handles to the objects in it.
#include "core/session.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <latch>
#include <memory>
#include <new>
#include <thread>

#include "fake_interpreter.h"
#include "threads.h"

namespace {

thread_local bool no_memory = false;  // for the calling thread

}  // namespace

// In the place of the C++ library's.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const made = no_memory ? nullptr : std::malloc(bytes);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
[[gnu::noinline]] void operator delete(void* gone) noexcept {
  std::free(gone);
}
[[gnu::noinline]] void operator delete(void* gone, size_t) noexcept {
  std::free(gone);
}

namespace interpool::testing {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  // A pool of one interpreter with a function that gives back its first argument.
  SessionTest() : fakes_(1) {
    fake().define("fake", "echo", [](const std::vector<Value>& args) { return args.at(0); });
    pool_ = std::make_shared<Pool>(fakes_.all());
  }

  FakeInterpreter& fake() { return fakes_[0]; }
  std::shared_ptr<Session> acquire(std::optional<double> timeout = 0.0) {
    return Session::acquire(pool_, "", timeout);
  }

  Fakes fakes_;
  std::shared_ptr<Pool> pool_;
};

TEST_F(SessionTest, RefusesWithoutAVisitToTheInterpreterOnceItIsClosed) {
  const auto session = acquire();
  const PyObj object = session->from_value(1);
  session->close();
  const int before = fake().visits();
  EXPECT_THROW(object.to_value(), SessionClosedError);  // who has it now may be busy in there
  session->close();
  EXPECT_EQ(fake().visits(), before);
}

TEST_F(SessionTest, ReleasesWhatForeignThreadsDropInsideItsInterpreter) {
  const auto session = acquire();
  const PyObj kept = session->from_value(1);
  auto dropped = std::make_unique<PyObj>(session->from_value(2));
  std::thread([&] {
    const int before = fake().visits();
    dropped.reset();  // needs no GIL, with any that this thread holds
    EXPECT_EQ(fake().visits(), before);
  }).join();
  EXPECT_EQ(fake().alive(), 2U);
  kept.to_value();
  EXPECT_EQ(fake().alive(), 1U);
}

// So many that work for each pair of them would not end.
TEST_F(SessionTest, NeedsNoMemoryToDropObjects) {
  const auto session = acquire();
  std::vector<PyObj> handles;
  for (int i = 0; i < 3; ++i) handles.push_back(session->from_value(i));
  handles.pop_back();
  session->from_value("a visit");  // releases the one, after which two are left
  no_memory = true;
  handles.clear();
  no_memory = false;
  session->from_value("a visit");
  EXPECT_EQ(fake().alive(), 1U);  // the last one, until the next visit
}

TEST_F(SessionTest, LooksAtEachDroppedObjectOnce) {
  constexpr int kObjects = 300'000;
  const auto session = acquire();
  std::vector<PyObj> objects;
  objects.reserve(kObjects);
  for (int i = 0; i < kObjects; ++i) objects.push_back(session->from_value(i));
  objects.clear();
  session->from_value(1);
  session->close();
  EXPECT_EQ(fake().alive(), 0U);
}

TEST_F(SessionTest, ReleasesEachOnceWhileOthersDropAndItWorks) {
  const auto session = acquire();
  const PyObj echo = session->global("fake", "echo");
  together(8, [&](int me) {
    for (int i = 0; i < 300; ++i) {
      PyObj made = echo.call({me * 1000 + i});
      EXPECT_EQ(made.to_value().as<int64_t>(), me * 1000 + i);
      const PyObj moved = std::move(made);  // what it was moved from drops nothing
    }
  });
  EXPECT_EQ(echo.call({1}).to_value().as<int64_t>(), 1);
  session->close();
  EXPECT_EQ(fake().alive(), 0U);
}

TEST_F(SessionTest, ClosesAfterTheCallThatRuns) {
  std::latch running(1);
  std::latch go_on(1);
  fake().define("fake", "wait", [&](const std::vector<Value>&) {
    running.count_down();
    go_on.wait();
    return "done";
  });
  const auto session = acquire();
  std::atomic<bool> closed{false};
  std::thread caller([&] {
    const PyObj result = session->global("fake", "wait").call();
    // Closing waited for the call; whether the result can still be read is a race.
  });
  running.wait();
  std::thread closer([&] {
    session->close();
    closed = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(closed);
  EXPECT_THROW(acquire(), LeaseTimeoutError);  // no other caller gets it meanwhile
  go_on.count_down();
  caller.join();
  closer.join();
  EXPECT_TRUE(closed);
  EXPECT_EQ(fake().alive(), 0U);
  acquire();
}

TEST_F(SessionTest, KeepsAnArgumentWhoseHandleWasDropped) {
  const auto session = acquire();
  const PyObj echo = session->global("fake", "echo");
  auto handle = std::make_unique<PyObj>(session->from_value("text"));
  auto argument = std::make_unique<Value>(*handle);
  std::thread([&] { handle.reset(); }).join();
  EXPECT_EQ(echo.call({*argument}).to_value().as<std::string>(), "text");
  EXPECT_EQ(echo.call({session->from_value("temporary")}).to_value().as<std::string>(), "temporary");
  argument.reset();
  EXPECT_EQ(echo.call({1}).to_value().as<int64_t>(), 1);
  EXPECT_EQ(fake().alive(), 2U);  // the function, and the last result until the next visit
}

TEST_F(SessionTest, RefusesAnArgumentOfAnInterpreterThatWasGivenUp) {
  std::latch go_on(1);
  fake().define("fake", "wait", [&](const std::vector<Value>&) {
    go_on.wait();
    return "done";
  });
  PoolOptions options;
  options.grace = 0.05;
  const auto session = Session::acquire(std::make_shared<Pool>(fakes_.all(), options), "", 10, 0.05);
  const PyObj object = session->from_value("text");
  const Value argument = object;
  EXPECT_THROW(session->global("fake", "wait").call(), CallTimeoutError);
  go_on.count_down();
  const Entered entered(fake());
  EXPECT_THROW(fake().from_value(argument), SessionClosedError);
  fake().close();  // what it held stays
}

TEST(Sessions, OfManyThreadsKeepApart) {
  Fakes fakes(3);
  for (auto& fake : fakes) {
    fake->define("fake", "who", [id = fake->id()](const std::vector<Value>&) { return id; });
  }
  const auto pool = std::make_shared<Pool>(fakes.all());
  together(12, [&](int) {
    for (int i = 0; i < 100; ++i) {
      const auto session = Session::acquire(pool, "", std::nullopt);
      const PyObj who = session->global("fake", "who").call();
      EXPECT_EQ(who.to_value().as<int64_t>(), session->interpreter_id());
      if (i % 2 == 0) session->close();
    }
  });
  for (auto& fake : fakes) EXPECT_TRUE(eventually([&] { return fake->alive() == 0; }));
}

}  // namespace
}  // namespace interpool::testing
