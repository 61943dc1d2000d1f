// The load balancer: who gets which interpreter, when, and who does not.
#include "core/pool.h"

#include <gtest/gtest.h>

#include <latch>
#include <limits>
#include <set>
#include <thread>

#include "core/session.h"
#include "core/start_pool.h"
#include "fake_interpreter.h"
#include "threads.h"

namespace interpool::testing {
namespace {

uint64_t leases_of(const Pool& pool) {
  uint64_t sum = 0;
  for (const Pool::Status& status : pool.status()) sum += status.leases;
  return sum;
}

// Every interpreter can be leased: no thread lost one.
void expect_all_free(Pool& pool) {
  std::set<Interpreter*> all;
  for (size_t i = 0; i < pool.size(); ++i) all.insert(&pool.acquire("", 0.0));
  EXPECT_EQ(all.size(), pool.size());
  for (Interpreter* interpreter : all) pool.release(*interpreter);
}

// A thread that waits for an interpreter, writes down that it got one, and gives it back.
std::thread waiter(Pool& pool, std::vector<int>& order, int name, const std::string& model = "") {
  const size_t before = pool.waiting();
  std::thread thread([&pool, &order, name, model] {
    Interpreter& interpreter = pool.acquire(model, std::nullopt);
    order.push_back(name);  // one interpreter goes round: one thread at a time
    pool.release(interpreter);
  });
  EXPECT_TRUE(eventually([&] { return pool.waiting() == before + 1; }));
  return thread;
}

TEST(Pool, HasAnInterpreterBackWhoseLeaseCouldNotBegin) {
  Fakes fakes(1);
  bool fails = true;
  for (auto& fake : fakes) {
    fake->on_lease = [&](const std::string&) {
      if (fails) throw std::bad_alloc();
    };
  }
  const auto pool = std::make_shared<Pool>(fakes.all());
  EXPECT_THROW(pool->acquire("a", 0.0), std::bad_alloc);
  fails = false;
  pool->release(pool->acquire("b", 0.0));
}

// A pool of so many fakes that starts one more of four others each time.
struct GrowingPool {
  explicit GrowingPool(int count) : first(count), later(4, count + 1) {
    PoolOptions options;
    options.start = [this]() -> Interpreter* { return later.all().at(started++); };
    pool = std::make_shared<Pool>(first.all(), std::move(options));
  }
  Pool* operator->() const { return pool.get(); }
  Pool& operator*() const { return *pool; }

  // How many interpreters have owners.
  int64_t own() const {
    const auto all = pool->status();
    return std::count_if(all.begin(), all.end(), [](const Pool::Status& one) {
      return !one.owner.empty() && one.state != Pool::State::kRetired;
    });
  }

  Fakes first;
  Fakes later;
  size_t started = 0;
  std::shared_ptr<Pool> pool;
};

void claim(Pool& pool, Interpreter& leased, const std::string& model) {
  dynamic_cast<FakeInterpreter&>(leased).claim = model;
  pool.release(leased);
}

TEST(Pool, LeasesAClaimedInterpreterToItsModelOnly) {
  const GrowingPool pool(2);
  Interpreter& claimed = pool->acquire("vandal", 0.0);
  claim(*pool, claimed, "vandal");
  EXPECT_TRUE(eventually([&] { return pool->size() == 2; }));  // another one shares in its place
  EXPECT_EQ(pool.own(), 1);
  std::set<Interpreter*> others;
  for (int i = 0; i < 2; ++i) others.insert(&pool->acquire("innocent", 0.0));
  EXPECT_EQ(others.count(&claimed), 0U);
  EXPECT_THROW(pool->acquire("innocent", 0.0, claimed.id()), InterpreterRetiredError);
  EXPECT_EQ(&pool->acquire("vandal", 0.0), &claimed);
  EXPECT_EQ(&pool->acquire("vandal", 30.0), pool.later.all().at(1));  // it has as many as callers wait for
  EXPECT_THROW(pool->acquire("vandal", 0.05), LeaseTimeoutError);     // up to the minimum size
}

TEST(Pool, RetiresWhatAModelHadToItselfWhenItIsForgotten) {
  const GrowingPool pool(1);
  Interpreter& claimed = pool->acquire("vandal", 0.0);
  claim(*pool, claimed, "vandal");
  pool->forget("vandal");
  EXPECT_EQ(pool.own(), 0);
  EXPECT_EQ(&pool->acquire("vandal", 30.0), pool.later.all().at(0));  // another model of that name shares
}

TEST(Pool, RetiresAnOwnInterpreterAfterTheLeaseInWhichItsModelWasForgotten) {
  const GrowingPool pool(1);
  pool->isolate("vandal");
  Interpreter& own = pool->acquire("vandal", 30.0);
  EXPECT_EQ(&own, pool.later.all().at(0));
  pool->forget("vandal");
  pool->release(own);
  EXPECT_EQ(pool.own(), 0);
  EXPECT_EQ(&pool->acquire("", 0.0), pool.first.all().at(0));
  EXPECT_THROW(pool->acquire("", 0.0, own.id()), InterpreterRetiredError);
}

TEST(Pool, RetiresItAlsoIfAnotherModelOfThatNameHasItsOwnMeanwhile) {
  const GrowingPool pool(1);
  pool->isolate("vandal");
  Interpreter& own = pool->acquire("vandal", 30.0);
  pool->forget("vandal");
  pool->isolate("vandal");
  pool->release(own);
  Interpreter& next = pool->acquire("vandal", 30.0);
  EXPECT_NE(&next, &own);
  EXPECT_EQ(pool.own(), 1);
}

TEST(Pool, RetiresWhatAModelClaimsThatWasForgottenMeanwhile) {
  const GrowingPool pool(1);
  Interpreter& claimed = pool->acquire("vandal", 0.0);
  pool->forget("vandal");
  claim(*pool, claimed, "vandal");
  EXPECT_EQ(pool.own(), 0);
  EXPECT_NE(&pool->acquire("", 30.0), &claimed);
}

TEST(Pool, LetsOthersWaitForNoInterpreterOfAModelsOwn) {
  const GrowingPool pool(1);
  pool->isolate("vandal");
  Interpreter& own = pool->acquire("vandal", 30.0);
  Interpreter& shared = pool->acquire("innocent", 0.0);
  std::vector<int> order;
  std::thread thread = waiter(*pool, order, 1);
  pool->release(own);
  EXPECT_EQ(pool->waiting(), 1U);
  pool->release(shared);
  thread.join();
}

TEST(Pool, AssignsAModelsCallersItsOwnInterpreters) {
  const GrowingPool pool(2);
  pool->isolate("vandal");
  EXPECT_EQ(pool->assign("vandal"), 3);
  EXPECT_EQ(pool->assign("vandal"), 4);
  EXPECT_EQ(pool->assign("vandal"), 5);  // also beyond the minimum size
  EXPECT_EQ(pool->assign("innocent"), 1);
}

TEST(Pool, ServesThoseWhoWaitInTheOrderInWhichTheyCame) {
  Fakes fakes(1);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  Interpreter& leased = pool.acquire("", 0.0);
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int name = 0; name < 8; ++name) threads.push_back(waiter(pool, order, name));
  pool.release(leased);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Pool, LetsNoCallerOvertakeThoseThatWait) {
  Fakes fakes(1);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  Interpreter& leased = pool.acquire("", 0.0);
  std::atomic<Interpreter*> got{nullptr};
  std::thread first([&] { got = &pool.acquire("", std::nullopt); });
  ASSERT_TRUE(eventually([&] { return pool.waiting() == 1; }));
  pool.release(leased);
  // Whether or not the first has woken up yet, the interpreter is its own.
  EXPECT_THROW(pool.acquire("", 0.0), LeaseTimeoutError);
  first.join();
  EXPECT_EQ(got.load(), &leased);
}

TEST(Pool, PrefersAnInterpreterThatHasServedTheNameBefore) {
  Fakes fakes(4);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  std::map<std::string, int> first;
  std::vector<Interpreter*> leased;
  for (const char* name : {"a", "b", "c"}) {
    leased.push_back(&pool.acquire(name, 0.0));
    first[name] = leased.back()->id();
  }
  for (Interpreter* interpreter : leased) pool.release(*interpreter);
  for (int round = 0; round < 3; ++round) {
    for (const auto& [name, id] : first) {
      Interpreter& again = pool.acquire(name, 0.0);
      EXPECT_EQ(again.id(), id) << name;
      pool.release(again);
    }
  }
}

TEST(Pool, PrefersTheInterpreterThatTheThreadLeasedLast) {
  Fakes fakes(2);
  Pool pool(fakes.all());
  Interpreter& other = pool.acquire("a", 0.0);
  Interpreter* mine = nullptr;
  std::thread([&] {
    mine = &pool.acquire("a", 0.0);
    pool.release(other);
    pool.release(*mine);
    Interpreter& again = pool.acquire("a", 0.0);
    EXPECT_EQ(&again, mine);
    pool.release(again);
  }).join();
  Interpreter& again = pool.acquire("a", 0.0);
  EXPECT_EQ(&again, &other);
  EXPECT_NE(mine, &other);
  pool.release(again);
}

TEST(Pool, PrefersNoneForACallThatRunsOnAnotherThread) {
  Fakes fakes(2);
  Pool pool(fakes.all());
  Interpreter& first = pool.acquire("a", 0.0);
  std::thread([&] {
    Interpreter& mine = pool.acquire("a", 0.0);
    pool.release(first);
    pool.release(mine);
    Interpreter& again = pool.acquire("a", 0.0, std::nullopt, /*runs_here=*/false);
    EXPECT_EQ(&again, &first);
    pool.release(again);
  }).join();
}

// Three models have been served by the first interpreter, which is leased, and "a" by the second.
class LoadsInPartOfItsTime : public ::testing::Test {
 protected:
  LoadsInPartOfItsTime() {
    for (const char* model : {"a", "b", "c"}) pool_->release(pool_->acquire(model, 0.0, 1));
    pool_->acquire("", 0.0, 1);
    Interpreter& second = pool_->acquire("a", 0.0, 2);
    std::this_thread::sleep_for(kLoad);
    pool_->release(second);
  }
  ~LoadsInPartOfItsTime() override { pool_->release(*fakes_.all().front()); }

  // Who gets the second interpreter, one after the other, if the models wait for it in this order.
  std::vector<int> served(const std::vector<std::string>& models) {
    Interpreter& second = pool_->acquire("", 0.0, 2);
    std::vector<int> order;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < models.size(); ++i) {
      threads.push_back(waiter(*pool_, order, static_cast<int>(i), models[i]));
    }
    pool_->release(second);
    for (std::thread& thread : threads) thread.join();
    return order;
  }

  static constexpr std::chrono::milliseconds kLoad{200};

 private:
  Fakes fakes_{2};
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>(fakes_.all());
};

TEST_F(LoadsInPartOfItsTime, ServesWhatItHasLoadedBeforeItLoadsTheNext) {
  EXPECT_EQ(served({"b", "a"}), (std::vector<int>{1, 0}));  // and no longer than a model waits that it has
}

TEST_F(LoadsInPartOfItsTime, LoadsAtOnceWhatNoOtherInterpreterHas) {
  EXPECT_EQ(served({"new", "a"}), (std::vector<int>{0, 1}));
}

TEST_F(LoadsInPartOfItsTime, LoadsTheNextWhenThatTimeHasPassed) {
  std::this_thread::sleep_for(4 * kLoad);
  EXPECT_EQ(served({"b", "a"}), (std::vector<int>{0, 1}));
}

TEST(Pool, SpreadsStrangersOverInterpretersWithTheFewestNames) {
  Fakes fakes(4);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  for (int name = 0; name < 8; ++name) {
    pool.release(pool.acquire("model " + std::to_string(name), 0.0));
  }
  for (const Pool::Status& status : pool.status()) EXPECT_EQ(status.affinities.size(), 2U);
}

TEST(Pool, CountsNothingOfAForgottenModel) {
  Fakes fakes(1);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  Interpreter& leased = pool.acquire("a", 0.0);
  pool.forget("a");
  pool.release(leased);
  EXPECT_EQ(pool.models().count("a"), 0);
}

TEST(Pool, WaitsAsGoodAsForEverWhenTheTimeoutExceedsTheClock) {
  Fakes fakes(1);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  for (const double timeout : {1e9, 1e300, std::numeric_limits<double>::infinity()}) {
    Interpreter& leased = pool.acquire("", 0.0);
    std::thread other([&] { pool.release(pool.acquire("", timeout)); });
    ASSERT_TRUE(eventually([&] { return pool.waiting() == 1; })) << timeout;
    pool.release(leased);
    other.join();
  }
}

TEST(Pool, TurnsAwayAllWhoWaitWhenItIsClosed) {
  Fakes fakes(1);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  Interpreter& leased = pool.acquire("", 0.0);
  std::atomic<int> turned_away{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const auto timeout = i % 2 == 0 ? std::optional<double>() : 60.0;
      EXPECT_THROW(pool.acquire("", timeout), PoolClosedError);
      ++turned_away;
    });
  }
  ASSERT_TRUE(eventually([&] { return pool.waiting() == 6; }));
  pool.close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turned_away, 6);
  EXPECT_THROW(pool.acquire("", std::nullopt), PoolClosedError);
  pool.release(leased);  // is still good, and comes back
  EXPECT_EQ(pool.status()[0].state, Pool::State::kFree);
}

TEST(Pool, LetsThoseWhoWaitGoOnWaitingWhenItIsClosedForGood) {
  Fakes fakes(1);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  Interpreter& leased = pool.acquire("", 0.0);
  std::atomic<int> looks{0};
  std::thread waits([&] {
    const WatchedWait watched([&] { ++looks; });  // wakes up now and then
    EXPECT_THROW(pool.acquire("", std::nullopt), PoolClosedError);
  });
  ASSERT_TRUE(eventually([&] { return pool.waiting() == 1; }));
  pool.close_for_good();
  const int before = looks;
  EXPECT_TRUE(eventually([&] { return looks >= before + 3; }));
  EXPECT_EQ(pool.waiting(), 1U);
  pool.close();
  waits.join();
  pool.release(leased);
}

TEST(Pool, LosesNothingAmongManyThreads) {
  constexpr int kThreads = 16;
  constexpr int kLeases = 400;
  Fakes fakes(3);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  std::vector<std::atomic<int>> users(fakes.size() + 1);
  together(kThreads, [&](int me) {
    for (int i = 0; i < kLeases; ++i) {
      Interpreter& mine = pool.acquire("model " + std::to_string((me + i) % 5), std::nullopt);
      EXPECT_EQ(users[mine.id()]++, 0) << "two threads have interpreter " << mine.id();
      --users[mine.id()];
      pool.release(mine);
    }
  });
  EXPECT_EQ(leases_of(pool), uint64_t{kThreads} * kLeases);
  EXPECT_EQ(pool.waiting(), 0U);
  expect_all_free(pool);
}

TEST(Pool, LosesNothingWhenTimeoutsAndReleasesCross) {
  Fakes fakes(2);
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  std::atomic<int> served{0};
  std::atomic<int> gave_up{0};
  const uint64_t seed = random_seed();
  together(8, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    for (int i = 0; i < 300; ++i) {
      try {
        Interpreter& mine = pool.acquire("", static_cast<double>(chance.number(0, 300)) * 1e-6);
        std::this_thread::sleep_for(std::chrono::microseconds(chance.number(0, 100)));
        pool.release(mine);
        ++served;
      } catch (const LeaseTimeoutError&) {
        ++gave_up;
      }
    }
  });
  EXPECT_EQ(served + gave_up, 8 * 300);
  EXPECT_EQ(leases_of(pool), static_cast<uint64_t>(served.load()));
  EXPECT_EQ(pool.waiting(), 0U);
  expect_all_free(pool);
}

TEST(Pool, LosesNothingWhenItIsClosedAmongManyThreads) {
  for (int round = 0; round < 20; ++round) {
    Fakes fakes(2);
    const auto shared = std::make_shared<Pool>(fakes.all());
    Pool& pool = *shared;
    together(6, [&](int me) {
      if (me == 0) {
        std::this_thread::sleep_for(200us);
        pool.close();
        return;
      }
      try {
        for (;;) pool.release(pool.acquire("", std::nullopt));
      } catch (const PoolClosedError&) {
      }
    });
    EXPECT_EQ(pool.waiting(), 0U);
    for (const Pool::Status& status : pool.status()) EXPECT_EQ(status.state, Pool::State::kFree);
  }
}

TEST(Pool, CallsAFunctionInEveryInterpreterLeasedOrNot) {
  Fakes fakes(3);
  std::atomic<int> called{0};
  for (auto& fake : fakes) {
    fake->define("module", "note", [&](const std::vector<Value>& args) {
      called += static_cast<int>(args.at(0).as<int64_t>());
      return Value();
    });
  }
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  pool.acquire("", 0.0);
  pool.tell_all("module", "note", 10, 20.0);
  EXPECT_EQ(called, 30);
  for (auto& fake : fakes) EXPECT_EQ(fake->alive(), 0U);
}

TEST(Pool, CallsItInTheOthersIfOneRaises) {
  Fakes fakes(3);
  std::atomic<int> called{0};
  for (auto& fake : fakes) {
    fake->define("module", "note", [&called, id = fake->id()](const std::vector<Value>&) -> Value {
      if (id == 1) throw RemoteError("ValueError", "not me", "");
      ++called;
      return {};
    });
  }
  const auto shared = std::make_shared<Pool>(fakes.all());
  Pool& pool = *shared;
  ::testing::internal::CaptureStderr();
  pool.tell_all("module", "note", None{}, 20.0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(called, 2);
  EXPECT_NE(said.find("interpreter 1: ValueError: not me"), std::string::npos) << said;
  for (auto& fake : fakes) EXPECT_EQ(fake->alive(), 0U);
}

TEST(Pool, CallsItInTheOthersIfOneHasNoMemory) {
  for (const bool is_reached : {true, false}) {
    Fakes fakes(3);
    std::atomic<int> called{0};
    for (auto& fake : fakes) {
      fake->define("module", "note", [&, id = fake->id()](const std::vector<Value>&) -> Value {
        if (id == 2) throw std::bad_alloc();
        ++called;
        return {};
      });
    }
    fakes[1].no_memory = !is_reached;
    const auto pool = std::make_shared<Pool>(fakes.all());
    ::testing::internal::CaptureStderr();
    const auto before = std::chrono::steady_clock::now();
    pool->tell_all("module", "note", None{}, 60.0);
    EXPECT_LT(std::chrono::steady_clock::now() - before, 30s);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(called, 2);
    EXPECT_NE(said.find("interpool: interpreter 2: std::bad_alloc"), std::string::npos) << said;
  }
}

TEST(Pool, WaitsForCallsInAllAsLongAsTheCallerLikes) {
  Fakes fakes(2);
  std::atomic<int> called{0};
  for (auto& fake : fakes) {
    fake->define("module", "note", [&](const std::vector<Value>&) -> Value {
      std::this_thread::sleep_for(50ms);
      ++called;
      return {};
    });
  }
  const auto pool = std::make_shared<Pool>(fakes.all());
  int all = 0;
  for (const double patience : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    pool->tell_all("module", "note", None{}, patience);
    EXPECT_EQ(called, all += 2) << patience;
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(pool->tell_all("module", "note", None{}, nan), ArgumentError);
  EXPECT_EQ(called, all);
}

std::set<int> ids_of(const std::vector<Interpreter*>& interpreters) {
  std::set<int> ids;
  for (const Interpreter* interpreter : interpreters) ids.insert(interpreter->id());
  return ids;
}

PoolOptions of_origin(const Origin& origin) {
  PoolOptions options;
  options.origin = origin;
  return options;
}

TEST(Pool, GivesUpWhatWasNeverLeasedOnceItIsClosed) {
  Fakes fakes(4);
  const Origin origin{{"/path"}, {"preloaded"}, {"A=b"}};
  const auto pool = std::make_shared<Pool>(fakes.all(), of_origin(origin));
  Interpreter& leased = pool->acquire("", 0.0);
  Interpreter& returned = pool->acquire("", 0.0);
  pool->release(returned);
  EXPECT_TRUE(pool->give_up(origin, 4).empty());
  pool->close();
  for (const Origin& other : {Origin{{}, {"preloaded"}, {"A=b"}}, Origin{{"/path"}, {}, {"A=b"}},
                              Origin{{"/path"}, {"preloaded"}, {"A=c"}}, Origin{}}) {
    EXPECT_TRUE(pool->give_up(other, 4).empty());
  }
  const auto first = ids_of(pool->give_up(origin, 1));
  const auto second = ids_of(pool->give_up(origin, 4));
  EXPECT_EQ(first, (std::set<int>{3}));
  EXPECT_EQ(second, (std::set<int>{4}));
  EXPECT_TRUE(pool->give_up(origin, 4).empty());
  EXPECT_EQ(pool->instances(), (std::vector<int>{1, 2}));
  EXPECT_EQ(pool->status().size(), 2U);
  EXPECT_EQ(pool->size(), 2U);
  pool->release(leased);  // as good as ever
  EXPECT_EQ(fakes[0].alive(), 0U);
}

TEST(ModuleSources, AreFoundByNameAndKnowWhetherTheyHaveSubmodules) {
  ModuleSources sources;
  sources.add("a", "x = 1");
  sources.add("b", "y = 1");
  sources.add("b.c", "z = 1");
  sources.add("a", "x = 2");
  const auto a = sources.find("a");
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->text, "x = 2");
  EXPECT_FALSE(a->package);
  EXPECT_TRUE(sources.find("b").value().package);
  EXPECT_FALSE(sources.find("b.").has_value());
  EXPECT_FALSE(sources.find("z").has_value());
}

TEST(Pool, NoLongerAnswersForWhatItGaveUp) {
  Fakes fakes(1);
  const auto pool = std::make_shared<Pool>(fakes.all());
  EXPECT_TRUE(pool->has(1));
  pool->close();
  ASSERT_EQ(pool->give_up({}, 1).size(), 1U);
  EXPECT_FALSE(pool->has(1));
  pool->forget("model");
  pool->tell_all("module", "undefined", None{}, 20.0);
  EXPECT_TRUE(fakes[0].forgotten.empty());
  EXPECT_EQ(fakes[0].visits(), 0);
}

TEST(Pool, GivesUpNothingAfterACallInAllInterpreters) {
  Fakes fakes(2);
  for (auto& fake : fakes) {
    fake->define("module", "note", [](const std::vector<Value>&) -> Value { return {}; });
  }
  const auto pool = std::make_shared<Pool>(fakes.all());
  pool->visit_leased([](Interpreter&) { ADD_FAILURE() << "it was never leased"; });
  for (auto& fake : fakes) EXPECT_EQ(fake->visits(), 0);
  pool->tell_all("module", "note", None{}, 20.0);
  for (auto& fake : fakes) EXPECT_EQ(fake->visits(), 1);
  pool->close();
  EXPECT_TRUE(pool->give_up({}, 2).empty());
}

// One that parks, and needs to start none.
std::shared_ptr<Pool> parking_pool(Fakes& fakes, const std::function<void()>& parking = [] {}) {
  for (auto& fake : fakes) {
    fake->define("interpool.native.inside.parking", "park", [parking](const auto&) {
      parking();
      return Value();
    });
  }
  PoolOptions options;
  options.start = []() -> Interpreter* { throw InterpreterStartError("none is needed"); };
  return std::make_shared<Pool>(fakes.all(), std::move(options));
}

TEST(Pool, GivesUpNothingThatIsBeingParked) {
  std::latch gate(1);
  Fakes fakes(2);
  const auto pool = parking_pool(fakes, [&] { gate.wait(); });
  pool->resize(1, 1);
  EXPECT_TRUE(eventually([&] { return pool->size() == 1; }));
  pool->close();
  EXPECT_EQ(pool->give_up({}, 2).size(), 1U);
  gate.count_down();
  EXPECT_TRUE(eventually([&] { return pool->give_up({}, 2).size() == 1; }));
  EXPECT_TRUE(eventually([&] { return pool.use_count() == 1; }));
}

TEST(Pool, GivesEachInterpreterToOneTakerOnly) {
  constexpr int kInterpreters = 64;
  Fakes fakes(kInterpreters);
  const auto pool = std::make_shared<Pool>(fakes.all());
  pool->close();
  std::vector<std::vector<Interpreter*>> taken(4);
  std::vector<std::thread> takers;
  for (auto& mine : taken) {
    takers.emplace_back([&pool, &mine] {
      for (int i = 0; i < kInterpreters; ++i) {
        for (Interpreter* one : pool->give_up({}, 1)) mine.push_back(one);
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  size_t count = 0;
  std::set<int> all;
  for (const auto& mine : taken) {
    count += mine.size();
    all.merge(ids_of(mine));
  }
  EXPECT_EQ(count, static_cast<size_t>(kInterpreters));
  EXPECT_EQ(all.size(), static_cast<size_t>(kInterpreters));
}

// What `work` throws says that.
void expect_refused(const std::function<void()>& work, const std::string& text) {
  try {
    work();
    ADD_FAILURE() << "accepted: " << text;
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

// A pool of the first of these; the others start when `gate` is opened.
std::shared_ptr<Pool> pool_of_first(const Fakes& fakes, std::latch& gate) {
  PoolOptions options;
  options.start = [all = fakes.all(), &gate, next = std::make_shared<std::atomic<size_t>>(1)] {
    gate.wait();
    return all.at((*next)++);
  };
  return std::make_shared<Pool>(std::vector<Interpreter*>{fakes.all().front()}, std::move(options));
}

TEST(Pool, ServesWhileTheOthersOfItsMinimumStart) {
  Fakes fakes(4);
  std::latch gate(1);
  const auto pool = pool_of_first(fakes, gate);
  pool->resize(4, 4);
  ASSERT_TRUE(eventually([&] { return pool->is_growing(); }));
  pool->release(pool->acquire("", 0.0));
  EXPECT_EQ(pool->size(), 1U);
  EXPECT_EQ(pool->min_size(), 4U);
  std::vector<int> order;
  Interpreter& leased = pool->acquire("", 0.0);
  std::thread waits = waiter(*pool, order, 1);  // for one of those that start
  gate.count_down();
  waits.join();
  pool->release(leased);
  EXPECT_TRUE(eventually([&] { return pool->size() == 4 && !pool->is_growing(); }));
  expect_all_free(*pool);
}

TEST(Pool, LetsCallersWhoStaySpreadOverThoseThatStart) {
  Fakes fakes(3);
  std::latch gate(1);
  const auto pool = pool_of_first(fakes, gate);
  pool->resize(3, 3);
  std::mutex mutex;
  std::multiset<int> homes;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      const int home = pool->assign("").value();
      const std::lock_guard lock(mutex);
      homes.insert(home);
    });
  }
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return homes.size() == 1;
  }));
  gate.count_down();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(homes, (std::multiset<int>{1, 2, 3}));
  EXPECT_TRUE(pool->assign("").has_value());  // all are there: the next one shares
  EXPECT_TRUE(eventually([&] { return !pool->is_growing(); }));
}

TEST(Pool, GoesOnWithoutThoseThatDoNotStart) {
  Fakes fakes(1);
  PoolOptions options;
  std::atomic<int> tries{0};
  options.start = [&tries]() -> Interpreter* {
    ++tries;
    throw InterpreterStartError("no room");
  };
  const auto pool = std::make_shared<Pool>(fakes.all(), std::move(options));
  ::testing::internal::CaptureStderr();
  pool->resize(3, 3);
  EXPECT_TRUE(eventually([&] { return pool->failed_starts() > 0 && !pool->is_growing(); }));
  pool->release(pool->acquire("", 0.0));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(pool->assign(""), 1);
  EXPECT_EQ(pool->failure(), "no room");
  EXPECT_EQ(pool->size(), 1U);
  pool->close();
  EXPECT_TRUE(eventually([&] { return pool.use_count() == 1; }));  // its thread has ended
  EXPECT_EQ(pool->failed_starts(), static_cast<uint64_t>(tries));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the pool could not start another interpreter: no room"), std::string::npos) << said;
}

TEST(Pool, LeasesItsMinimumAfterAStartThatFailedWhileItWasResized) {
  Fakes fakes(1);
  PoolOptions options;
  std::latch gate(1);
  std::atomic<int> tries{0};
  options.max_size = 2;
  options.start = [&]() -> Interpreter* {
    if (tries++ == 0) gate.wait();
    throw InterpreterStartError("no room");
  };
  const auto pool = std::make_shared<Pool>(fakes.all(), std::move(options));
  ::testing::internal::CaptureStderr();
  Interpreter& leased = pool->acquire("", 0.0);
  std::vector<int> order;
  std::thread waits = waiter(*pool, order, 1);  // that is worth another interpreter
  EXPECT_TRUE(eventually([&] { return tries > 0; }));
  pool->resize(1, 3);
  pool->release(leased);
  waits.join();
  gate.count_down();
  EXPECT_TRUE(eventually([&] { return pool->failed_starts() > 0; }));
  Interpreter& again = pool->acquire("", 10.0);
  std::this_thread::sleep_for(20ms);  // it has had its fair part then
  pool->release(again);
  pool->release(pool->acquire("", 0.0));  // not kept for models that have had less
  pool->close();
  EXPECT_TRUE(eventually([&] { return pool.use_count() == 1; }));  // its thread has ended
  ::testing::internal::GetCapturedStderr();
}

TEST(Pool, ParksWhatIsAboveItsNewMaximum) {
  Fakes fakes(3);
  const auto pool = parking_pool(fakes);
  pool->resize(1, 1);
  EXPECT_TRUE(eventually([&] { return pool->size() == 1; }));
  EXPECT_EQ(pool->instances().size(), 3U);
  pool->resize(3, 3);  // they are there
  EXPECT_TRUE(eventually([&] { return pool->size() == 3; }));
  EXPECT_EQ(pool->failed_starts(), 0U);
}

TEST(Pool, LeasesWhatIsParkedAlsoAfterAStartThatFailed) {
  Fakes fakes(2);
  const auto pool = parking_pool(fakes);
  ::testing::internal::CaptureStderr();
  pool->resize(3, 3);
  EXPECT_TRUE(eventually([&] { return pool->failed_starts() > 0 && !pool->is_growing(); }));
  pool->resize(1, 3);
  EXPECT_TRUE(eventually([&] { return pool->size() == 1; }));
  pool->retire(pool->acquire("", 0.0));
  pool->release(pool->acquire("", 10.0));
  EXPECT_EQ(pool->size(), 1U);
  ::testing::internal::GetCapturedStderr();
}

TEST(Pool, ParksWhatIsNotNeededAlsoIfAModelsOwnInterpreterCannotBeStarted) {
  Fakes fakes(3);
  const auto pool = parking_pool(fakes);
  ::testing::internal::CaptureStderr();
  pool->isolate("alone");
  EXPECT_THROW(pool->acquire("alone", 10.0), InterpreterStartError);
  pool->resize(1, 3);
  EXPECT_TRUE(eventually([&] { return pool->size() == 1; }));
  ::testing::internal::GetCapturedStderr();
}

TEST(Pool, IsLimitedToTheFirstOfThoseThatCanBeLeased) {
  Fakes fakes(3);
  const auto all = fakes.all();
  PoolOptions options;
  options.start = [&] { return all[2]; };
  const auto pool = std::make_shared<Pool>(std::vector<Interpreter*>{all[0], all[1]}, std::move(options));
  pool->limit(1);
  pool->retire(pool->acquire("", 0.0));
  ASSERT_TRUE(eventually([&] { return pool->size() == 2; }));  // another one in its place
  Interpreter& leased = pool->acquire("", 10.0);
  EXPECT_EQ(leased.id(), 2);
  EXPECT_THROW(pool->acquire("", 0.0), LeaseTimeoutError);
  pool->release(leased);
  pool->close();
  EXPECT_TRUE(eventually([&] { return pool.use_count() == 1; }));  // its thread has ended
}

TEST(Pool, IsNotLimitedOnceItsSizeIsTheLimit) {
  Fakes fakes(2);
  const auto all = fakes.all();
  PoolOptions options;
  options.start = [&] { return all[1]; };
  const auto pool = std::make_shared<Pool>(std::vector<Interpreter*>{all[0]}, std::move(options));
  pool->limit(1);  // all that there are
  pool->resize(2, 2);
  ASSERT_TRUE(eventually([&] { return pool->size() == 2; }));
  Interpreter& first = pool->acquire("", 0.0);
  pool->release(pool->acquire("", 0.0));
  pool->release(first);
  pool->close();
  EXPECT_TRUE(eventually([&] { return pool.use_count() == 1; }));  // its thread has ended
}

TEST(Pool, IsNotLimitedToWhatIsParked) {
  Fakes fakes(2);
  const auto pool = parking_pool(fakes);
  Interpreter& second = pool->acquire("", 0.0, 2);
  pool->resize(1, 1);
  ASSERT_TRUE(eventually([&] { return pool->size() == 1; }));
  pool->limit(1);
  pool->release(second);
  pool->release(pool->acquire("", 10.0));
}

TEST(Pool, IsNotResizedToInvalidSizes) {
  Fakes fakes(2);
  const auto pool = std::make_shared<Pool>(fakes.all());
  expect_refused([&] { pool->resize(0, 1); }, "not 0 and 1");
  expect_refused([&] { pool->resize(2, 1); }, "not 2 and 1");
  expect_refused([&] { pool->resize(3, 3); }, "starts no interpreters");
  EXPECT_EQ(pool->min_size(), 2U);
}

TEST(Pool, HasTheSizeThatItsSettingsSay) {
  const auto size = [](std::optional<int64_t> min_size, std::optional<int64_t> max_size) {
    const PoolSize found = size_of({min_size, max_size}, 6);
    return std::make_pair(found.min_size, found.max_size);
  };
  EXPECT_EQ(size({}, {}), std::make_pair(size_t{6}, size_t{24}));
  EXPECT_EQ(size({}, 6), std::make_pair(size_t{6}, size_t{6}));
  EXPECT_EQ(size(3, {}), std::make_pair(size_t{3}, size_t{3}));
  EXPECT_EQ(size(3, 5), std::make_pair(size_t{3}, size_t{5}));
}

TEST(Pool, KeepsToWhatIsPreparedUnlessAMaximumIsNamed) {
  const auto max_size = [](const PoolSettings& settings, size_t startable) {
    return size_of(settings, 6, startable).max_size;
  };
  EXPECT_EQ(max_size({}, 6), 6U);
  EXPECT_EQ(max_size({}, 10), 10U);
  EXPECT_EQ(max_size({}, 100), 24U);
  EXPECT_EQ(max_size({}, 2), 6U);  // its start says what is missing
  EXPECT_EQ(max_size({{}, 8}, 6), 8U);
  EXPECT_EQ(max_size({3, {}}, 2), 3U);
}

TEST(Pool, RefusesInvalidSettings) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_refused([] { check({0, {}}); }, "needs at least one interpreter, not 0");
  expect_refused([] { check({-3, 5}); }, "needs at least one interpreter, not -3");
  expect_refused([] { check({2, 1}); }, "a maximum size of 1 is below the minimum size, 2");
  expect_refused([] { check({2, 2, 0}); }, "a time is a positive number of seconds, not 0");
  expect_refused([] { check({2, 2, 60, -1.5}); }, "a time is a positive number of seconds, not -1.5");
  expect_refused([&] { check({2, 2, nan}); }, "a time is a positive number of seconds, not nan");

  Fakes fakes(2);
  const auto pool = std::make_shared<Pool>(fakes.all());
  expect_refused([&] { pool->acquire("", -1.0); }, "a timeout is a number of seconds, not -1");
  expect_refused([&] { pool->acquire("", nan); }, "a timeout is a number of seconds, not nan");
  expect_refused([&] { Session::acquire(pool, "", {}, 0.0); },
                 "a call limit is a positive number of seconds, not 0");
  for (const int64_t count : {-1, 0, 3}) {
    expect_refused([&] { pool->limit(count); },
                   "a pool of 2 interpreters can be limited to 1 to 2, not " + std::to_string(count));
  }
  expect_all_free(*pool);
}

}  // namespace
}  // namespace interpool::testing
