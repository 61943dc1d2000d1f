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

TEST_F(SessionTest, CallsWhatIsInside) {
  const auto session = acquire();
  const PyObj echo = session->global("fake", "echo");
  const PyObj result = echo.call({"text"});
  EXPECT_EQ(result.to_value().as<std::string>(), "text");
  EXPECT_EQ(result.attr("name").to_value().as<std::string>(), "name of text");
}

TEST_F(SessionTest, LooksIntoWhatIsInside) {
  const auto session = acquire();
  const PyObj text = session->from_value("text");
  EXPECT_TRUE(text.has_attr("name"));
  EXPECT_FALSE(session->from_value(1).has_attr("name"));
  EXPECT_EQ(session->from_value(List{{"first", "second"}}).item(1).to_value().as<std::string>(), "second");
  EXPECT_TRUE(session->is_owner(text));
  EXPECT_EQ(text.interpreter_id(), session->interpreter_id());
}

TEST_F(SessionTest, CallsInTheModesOfItsCaller) {
  const int mark = 0;
  const CallerModes modes(std::shared_ptr<const int>(), reinterpret_cast<const Modes*>(&mark));
  for (const std::optional<double> call_limit : {std::optional<double>(), std::optional<double>(60)}) {
    const auto session = Session::acquire(pool_, "", 10, call_limit);
    const PyObj echo = session->global("fake", "echo");
    modes_here = modes;
    echo.call({"text"}).attr("name");
    echo.call({"text"}).has_attr("name");
    echo.call({List{{1}}}).item(0);
    modes_here = nullptr;
    echo.call({"text"});
    modes_here = modes;
    session->run({"fake", "echo"}, {"text"});  // interpool's own
    modes_here = nullptr;
    const std::vector<CallerModes> expected{modes, modes, modes, modes, modes, modes, nullptr, nullptr};
    EXPECT_EQ(fake().modes_seen, expected);
    fake().modes_seen.clear();
    session->close();
  }
}

TEST_F(SessionTest, HasASelfWhenItWasAcquiredForAnObject) {
  const auto session = acquire();
  EXPECT_THROW(session->self(), SessionError);
  session->set_self(session->from_value("text"));
  EXPECT_EQ(session->self().to_value().as<std::string>(), "text");
  session->close();
  EXPECT_THROW(session->self(), SessionClosedError);
  EXPECT_EQ(fake().alive(), 0U);
}

TEST_F(SessionTest, RefusesEveryUseOfAnObjectOnceItIsClosed) {
  const auto session = acquire();
  const PyObj echo = session->global("fake", "echo");
  const PyObj text = session->from_value("text");
  session->close();
  EXPECT_FALSE(session->is_open());
  EXPECT_THROW(echo.call({1}), SessionClosedError);
  EXPECT_THROW(text.attr("name"), SessionClosedError);
  EXPECT_THROW(text.has_attr("name"), SessionClosedError);
  EXPECT_THROW(text.item(0), SessionClosedError);
  EXPECT_THROW(text.to_value(), SessionClosedError);
  EXPECT_THROW(text.reference(), SessionClosedError);
  EXPECT_THROW(session->global("fake", "echo"), SessionClosedError);
  EXPECT_THROW(session->from_value(None{}), SessionClosedError);
}

TEST_F(SessionTest, RefusesWithoutAVisitToTheInterpreterOnceItIsClosed) {
  const auto session = acquire();
  const PyObj object = session->from_value(1);
  session->close();
  const int before = fake().visits();
  EXPECT_THROW(object.to_value(), SessionClosedError);  // whoever has it now may be busy in there
  session->close();
  EXPECT_EQ(fake().visits(), before);
}

TEST_F(SessionTest, VisitsItsInterpreterOnlyForWork) {
  acquire()->close();
  EXPECT_EQ(fake().visits(), 0);
}

TEST_F(SessionTest, StaysClosedWhenTheInterpreterServesSomebodyElse) {
  const auto before = acquire();
  const PyObj mine = before->from_value(1);
  before->close();
  const auto now = acquire();
  const PyObj theirs = now->from_value(2);
  EXPECT_THROW(mine.to_value(), SessionClosedError);
  EXPECT_EQ(theirs.to_value().as<int64_t>(), 2);
}

TEST_F(SessionTest, ReleasesAllObjectsWhenItIsClosed) {
  const auto session = acquire();
  std::vector<PyObj> objects;
  for (int i = 0; i < 10; ++i) objects.push_back(session->from_value(i));
  objects.pop_back();
  EXPECT_EQ(fake().alive(), 10U);
  session->close();
  EXPECT_EQ(fake().alive(), 0U);
}

TEST_F(SessionTest, GivesItsInterpreterBackWhenTheLastHandleGoes) {
  {
    const PyObj object = acquire()->from_value(1);
    EXPECT_THROW(acquire(), LeaseTimeoutError);
    EXPECT_EQ(object.to_value().as<int64_t>(), 1);
  }
  // On another thread: whoever lets go waits for nothing.
  EXPECT_TRUE(eventually([&] { return fake().alive() == 0; }));
  acquire(20.0);
}

TEST_F(SessionTest, ClosesOnce) {
  const auto session = acquire();
  session->close();
  const auto next = acquire();
  session->close();  // does not give away what is another's now
  EXPECT_THROW(acquire(), LeaseTimeoutError);
}

TEST_F(SessionTest, ReleasesWhatForeignThreadsDropInsideItsInterpreter) {
  const auto session = acquire();
  const PyObj kept = session->from_value(1);
  auto dropped = std::make_unique<PyObj>(session->from_value(2));
  std::thread([&] {
    const int before = fake().visits();
    dropped.reset();  // needs no GIL, whichever this thread holds
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

TEST_F(SessionTest, MakesTheSecondSessionWaitForTheFirst) {
  auto first = acquire();
  std::atomic<bool> entered{false};
  std::thread other([&] {
    const auto second = acquire(std::nullopt);
    entered = true;
    EXPECT_EQ(second->from_value(2).to_value().as<int64_t>(), 2);
  });
  ASSERT_TRUE(eventually([&] { return pool_->waiting() == 1; }));
  EXPECT_FALSE(entered);
  EXPECT_EQ(first->from_value(1).to_value().as<int64_t>(), 1);
  first->close();
  other.join();
  EXPECT_TRUE(entered);
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
  EXPECT_THROW(acquire(), LeaseTimeoutError);  // nobody else gets it meanwhile
  go_on.count_down();
  caller.join();
  closer.join();
  EXPECT_TRUE(closed);
  EXPECT_EQ(fake().alive(), 0U);
  acquire();
}

TEST_F(SessionTest, GoesOnAfterAnError) {
  fake().define("fake", "raise", [](const std::vector<Value>&) -> Value {
    throw RemoteError("ValueError", "no", "a traceback");
  });
  const auto session = acquire();
  const PyObj raise = session->global("fake", "raise");
  for (int i = 0; i < 3; ++i) EXPECT_THROW(raise.call(), RemoteError);
  EXPECT_THROW(session->global("fake", "missing"), RemoteError);
  EXPECT_EQ(session->from_value(1).to_value().as<int64_t>(), 1);
  session->close();
  EXPECT_EQ(fake().alive(), 0U);
}

TEST_F(SessionTest, RefersToObjectsByInterpreter) {
  const auto session = acquire();
  const PyObj object = session->from_value(1);
  EXPECT_EQ(object.reference().interpreter, fake().id());
  EXPECT_EQ(session->interpreter_id(), fake().id());
}

TEST_F(SessionTest, RefusesAnArgumentWhoseSessionClosedMeanwhile) {
  const auto before = acquire();
  const PyObj object = before->from_value("text");
  const Value argument = object;
  before->close();
  const auto now = acquire();
  EXPECT_THROW(now->global("fake", "echo").call({argument}), SessionClosedError);
  EXPECT_THROW(now->from_value(argument), SessionClosedError);
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

TEST_F(SessionTest, StaysGoodWhenThePoolIsClosed) {
  const auto session = acquire();
  pool_->close();
  EXPECT_EQ(session->from_value(1).to_value().as<int64_t>(), 1);
  session->close();
  EXPECT_THROW(acquire(), PoolClosedError);
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
