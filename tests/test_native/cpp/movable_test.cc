// Objects that every interpreter may have a copy of: when copies are made, when they go, and who may ask at
// once.
#include "core/movable.h"

#include <gtest/gtest.h>

#include <latch>

#include "core/awaited_call.h"
#include "core/session.h"
#include "fake_interpreter.h"
#include "threads.h"

namespace interpool::testing {
namespace {

class MovableTest : public ::testing::Test {
 protected:
  // A copy is a text that can be called.
  MovableTest() : fakes_(3) {
    for (auto& fake : fakes_) {
      fake->define("fake", "make", [this](const std::vector<Value>& args) {
        ++made_;
        return args.at(0);
      });
    }
    pool_ = std::make_shared<Pool>(fakes_.all());
  }

  std::shared_ptr<Movable> movable(const std::string& affinity = "") {
    return std::make_shared<Movable>(pool_, affinity, Recipe{{"fake", "make"}, {"text"}},
                                     std::vector<std::shared_ptr<void>>{});
  }
  std::string text_of(const std::shared_ptr<Movable>& movable, int interpreter) {
    const auto session = Session::acquire(pool_, movable->affinity(), 20.0, std::nullopt, interpreter);
    return session->from_movable(movable).to_value().as<std::string>();
  }
  void expect_nothing_held() {
    for (auto& fake : fakes_) EXPECT_TRUE(eventually([&] { return fake->alive() == 0; }));
  }

  Fakes fakes_;
  std::shared_ptr<Pool> pool_;
  std::atomic<int> made_{0};
};

TEST_F(MovableTest, GoesWithAllOthersFromAnInterpreterThatIsNotNeeded) {
  const std::vector<std::shared_ptr<Movable>> objects{movable(), movable("shared"), movable("shared")};
  for (const auto& object : objects) {
    for (const int interpreter : {1, 2}) text_of(object, interpreter);
  }
  // A closed session's handles go a little later.
  for (const int which : {0, 1}) {
    EXPECT_TRUE(eventually([&] { return fakes_[which].alive() == objects.size(); }));
  }
  Movable::unload_all(2);
  EXPECT_TRUE(eventually([&] { return fakes_[1].alive() == 0; }));
  EXPECT_EQ(fakes_[0].alive(), objects.size());
  for (const auto& object : objects) object->unload(std::nullopt);
  expect_nothing_held();
}

TEST_F(MovableTest, IsAwaitedByManyAtOnceAndCancelledAtAnyTime) {
  for (auto& fake : fakes_) {
    fake->define("", "", [](const std::vector<Value>& args) { return args.at(0); });  // a copy, called
  }
  const uint64_t seed = random_seed();
  const auto common = movable("common");
  together(6, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    for (int i = 0; i < 200; ++i) {
      std::latch ended(1);
      const int64_t number = chance.number(0, 1'000'000);
      const auto call = AwaitedCall::start(common, {Value(number)}, {}, nullptr,
                                           [&](const std::shared_ptr<AwaitedCall>&) { ended.count_down(); });
      const bool is_cancelled = chance.number(0, 3) == 0;
      if (is_cancelled) {
        call->cancel();
      }
      if (chance.number(0, 9) == 0) {
        common->unload(static_cast<int>(chance.number(1, 3)));
      }
      ended.wait();
      const Value found = call->take();
      if (!is_cancelled) {
        EXPECT_EQ(found.as<int64_t>(), number);
      }
    }
  });
  EXPECT_EQ(pool_->waiting(), 0U);
  std::vector<Interpreter*> all;
  for (int i = 0; i < 3; ++i) all.push_back(&pool_->acquire("", 20.0));
  for (Interpreter* one : all) pool_->release(*one);
}

TEST_F(MovableTest, RaisesForItsAwaitersIfThePoolIsClosed) {
  const auto object = movable();
  std::latch ended(1);
  pool_->close();
  const auto call = AwaitedCall::start(object, {}, {}, nullptr,
                                       [&](const std::shared_ptr<AwaitedCall>&) { ended.count_down(); });
  ended.wait();
  EXPECT_THROW(call->take(), PoolClosedError);
}

TEST_F(MovableTest, IsUsedUnloadedAndDroppedByManyAtOnce) {
  const uint64_t seed = random_seed();
  const auto common = movable("common");
  together(6, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    auto own = movable();
    for (int i = 0; i < 100; ++i) {
      const auto interpreter = static_cast<int>(chance.number(1, 3));
      switch (chance.number(0, 6)) {
        case 0:
          common->unload(interpreter);
          break;
        case 1:
          Movable::unload_all(interpreter);
          break;
        case 2:
          own = movable();  // the one before goes, wherever it has copies
          break;
        default:
          EXPECT_EQ(text_of(chance.number(0, 1) == 0 ? common : own, interpreter), "text");
      }
    }
  });
  common->unload(std::nullopt);
  expect_nothing_held();
}

}  // namespace
}  // namespace interpool::testing
