// Who is next among models that wait, what a share holds back, and when a reserve is started.
#include <gtest/gtest.h>

#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "core/cores.h"
#include "core/fair_queue.h"
#include "core/pool.h"
#include "fake_interpreter.h"
#include "threads.h"

namespace interpool::testing {
namespace {

// ---- the order, on a clock of the test's own -----------------------------------------------------

bool any_flow(const FairQueue::Flow& /*flow*/) {
  return true;
}

// Models that ask again at once, on `places` interpreters. Each call takes what `length` says.
class Simulation {
 public:
  explicit Simulation(size_t places) : places_(places) {}

  // `workers` of them never rest.
  void greedy(const std::string& model, size_t workers, double length) {
    lengths_[model] = length;
    for (size_t i = 0; i < workers; ++i) ask(model);
  }
  void ask(const std::string& model) {
    const auto came = Clock::time_point() + seconds(now_) + std::chrono::nanoseconds(number_++);
    waiters_.emplace_back(new FairQueue::Waiter{queue_.flow(model), {}, 0, came});
    queue_.wait(*waiters_.back(), now_);
    fill();
  }
  // Until the next call ends, whose model asks again at once.
  void step() {
    const auto first =
        std::min_element(running_.begin(), running_.end(), [](auto& a, auto& b) { return a.end < b.end; });
    const Call call = *first;
    running_.erase(first);
    now_ = call.end;
    queue_.end(*call.flow, call.begun, now_);
    served_[call.flow->name] += now_ - call.begun;
    const std::string model = call.flow->name;
    fill();
    ask(model);
  }
  void run(double until) {
    while (now_ < until) step();
  }
  double now() const { return now_; }
  double served(const std::string& model) { return served_[model]; }
  FairQueue& queue() { return queue_; }

 private:
  struct Call {
    FairQueue::Flow* flow;
    double begun;
    double end;
  };
  void fill() {
    while (running_.size() < places_) {
      FairQueue::Flow* next = queue_.next(now_, any_flow);
      if (next == nullptr) return;
      FairQueue::Waiter& waiter = *next->waiters.front();
      queue_.begin(*next, now_);
      queue_.stop_waiting(waiter);
      running_.push_back({next, now_, now_ + lengths_[next->name]});
    }
  }

  const size_t places_;
  FairQueue queue_;
  std::vector<std::unique_ptr<FairQueue::Waiter>> waiters_;
  std::vector<Call> running_;
  std::map<std::string, double> lengths_;
  std::map<std::string, double> served_;
  double now_ = 1000;
  int number_ = 0;
};

TEST(FairQueue, GivesModelsEqualTimeHoweverManyWorkersAndHoweverLongTheirCalls) {
  Simulation all(2);
  all.greedy("many", 16, 0.2);
  all.greedy("few", 2, 0.05);
  all.greedy("long", 4, 1.0);
  all.run(all.now() + 300);
  for (const char* model : {"many", "few", "long"}) EXPECT_NEAR(all.served(model), 200, 5) << model;
}

TEST(FairQueue, LetsNoModelSaveUpTimeThatItDidNotUse) {
  Simulation all(1);
  all.greedy("early", 4, 0.1);
  all.run(all.now() + 100);
  const double before = all.served("early");
  all.greedy("newcomer", 4, 0.1);
  all.run(all.now() + 10);
  EXPECT_NEAR(all.served("newcomer"), 5, 0.5);
  EXPECT_NEAR(all.served("early") - before, 5, 0.5);
}

TEST(FairQueue, ServesAModelThatComesBackBeforeThoseThatNeverLeft) {
  FairQueue queue;
  FairQueue::Flow& greedy = queue.flow("greedy");
  for (int i = 0; i < 8; ++i) queue.begin(greedy, 10 + i);
  FairQueue::Waiter ninth{greedy, {}, 0, Clock::time_point()};
  queue.wait(ninth, 20);
  FairQueue::Flow& quiet = queue.flow("quiet");
  FairQueue::Waiter only{quiet, {}, 0, Clock::time_point() + 1s};
  queue.wait(only, 21);
  EXPECT_TRUE(queue.is_behind(quiet, 21));
  EXPECT_FALSE(queue.is_behind(greedy, 21));
  EXPECT_EQ(queue.next(21.5, any_flow), &quiet);
  EXPECT_EQ(queue.next(21.5, [&](const FairQueue::Flow& flow) { return &flow != &quiet; }), &greedy);
  queue.stop_waiting(only);
  queue.stop_waiting(ninth);
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, KnowsWhichFlowIsBehindWhileOthersCallsAreLong) {
  FairQueue queue;
  FairQueue::Flow& greedy = queue.flow("greedy");
  queue.begin(greedy, 100);
  FairQueue::Waiter second{greedy, {}, 0, Clock::time_point()};
  queue.wait(second, 100);
  FairQueue::Flow& quiet = queue.flow("quiet");
  for (int i = 1; i <= 5; ++i) {  // none of the greedy one's calls ends
    EXPECT_TRUE(queue.is_behind(quiet, 100 + i)) << i;
    queue.begin(quiet, 100 + i);
    queue.end(quiet, 100 + i, 100.1 + i);
  }
  for (int i = 6; i <= 7; ++i) queue.begin(quiet, 100 + i);
  queue.end(quiet, 106, 112);
  EXPECT_FALSE(queue.is_behind(quiet, 112));  // it has one
  queue.end(quiet, 107, 112);
  EXPECT_FALSE(queue.is_behind(quiet, 112));  // two at once, while the greedy one had one
  queue.stop_waiting(second);
}

TEST(FairQueue, HasHardlyAFlowBehindAmongEquals) {
  Simulation all(2);
  for (int i = 0; i < 8; ++i) all.greedy("model " + std::to_string(i), 1, 0.2 + 0.03 * i);
  all.run(all.now() + 5);
  int behind = 0;
  int waited = 0;
  for (int i = 0; i < 1000; ++i) {
    all.step();
    for (const FairQueue::Flow* flow : all.queue().waiting()) {
      behind += all.queue().is_behind(*flow, all.now()) ? 1 : 0;
      ++waited;
    }
  }
  EXPECT_LT(behind, waited / 10);
}

TEST(FairQueue, DropsAFlowThatWasForgottenWhileItRanUnlessItIsUsedAgain) {
  FairQueue queue;
  for (const bool again : {false, true}) {
    queue.begin(queue.flow("model"), 1.0);
    FairQueue::Flow& flow = queue.flow("model");
    queue.forget("model");
    if (again) queue.flow("model").share = 1;
    queue.end(flow, 1.0, 2.0);
    EXPECT_EQ(queue.flows().count("model"), again ? 1U : 0U);
  }
}

TEST(FairQueue, DropsAFlowThatWasForgottenWhileItWaited) {
  FairQueue queue;
  FairQueue::Waiter waiter{queue.flow("model"), {}, 0, Clock::now()};
  queue.wait(waiter, 1.0);
  queue.forget("model");
  EXPECT_EQ(queue.flows().count("model"), 1U);
  queue.stop_waiting(waiter);
  EXPECT_EQ(queue.flows().count("model"), 0U);
}

TEST(FairQueue, ForgetsFlowsOfWhichThereIsNothingToSay) {
  FairQueue queue;
  for (int i = 0; i < 5000; ++i) {
    FairQueue::Flow& flow = queue.flow("session " + std::to_string(i));
    queue.begin(flow, i);
    queue.end(flow, i, i + 0.5);
    FairQueue::Flow& other = queue.flow("busy");
    queue.begin(other, i);
    queue.end(other, i, i + 1.0);
  }
  EXPECT_LE(queue.flows().size(), 1100U);
}

// ---- the pool ------------------------------------------------------------------------------------

// Leases one, for a model, on a thread of its own, and computes on all cores, or sleeps, until it is stopped.
class Lessee {
 public:
  Lessee(Pool& pool, std::string model, bool sleeps = false)
      : pool_(pool), thread_([this, sleeps, model = std::move(model)] {
          Interpreter& mine = pool_.acquire(model, std::nullopt);
          std::vector<std::jthread> others;
          while (!sleeps && others.size() + 1 < cores()) {
            others.emplace_back([this] {
              while (!over_) std::this_thread::yield();
            });
          }
          interpreter_ = &mine;
          while (!over_) sleeps ? std::this_thread::sleep_for(1ms) : std::this_thread::yield();
          pool_.release(mine);
        }) {}
  ~Lessee() { end(); }
  bool has_one() const { return interpreter_ != nullptr; }
  void let_go() { over_ = true; }
  void end() {
    let_go();
    if (thread_.joinable()) thread_.join();
  }

 private:
  Pool& pool_;
  std::atomic<bool> over_{false};
  std::atomic<Interpreter*> interpreter_{nullptr};
  std::thread thread_;
};

// Some may wait for what others have: at the end all let go before any is waited for.
struct Lessees : std::vector<std::unique_ptr<Lessee>> {
  Lessees() = default;
  Lessees(const Lessees&) = delete;
  Lessees& operator=(const Lessees&) = delete;
  ~Lessees() {
    for (const auto& one : *this) one->let_go();
  }
};

void add(Lessees& all, Pool& pool, const std::string& model, bool sleeps = false) {
  const size_t before = pool.waiting();
  all.push_back(std::make_unique<Lessee>(pool, model, sleeps));
  EXPECT_TRUE(eventually([&] { return all.back()->has_one() || pool.waiting() > before; }));
}

size_t having(const Lessees& all) {
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& one) { return one->has_one(); }));
}

// Notes the lease that it gets.
class Listener final : public LeaseListener {
 public:
  void leased(Interpreter* interpreter) noexcept override { heard_ = interpreter; }
  Interpreter* heard() const { return heard_; }

 private:
  std::atomic<Interpreter*> heard_{nullptr};
};

std::shared_ptr<Listener> waiting_for(Pool& pool, const std::string& model) {
  auto listener = std::make_shared<Listener>();
  EXPECT_TRUE(pool.acquire_for(model, listener));
  return listener;
}

TEST(Fairness, AModelKeepsAnInterpreterForAMomentBeforeAnotherOneIsPutInPlace) {
  Fakes fakes(1);
  const auto pool = std::make_shared<Pool>(fakes.all());
  pool->release(pool->acquire("other", 0.0));
  bool in_time = false;
  while (!in_time) {  // unless this thread was kept from its core
    const auto began = Clock::now();
    Interpreter& only = pool->acquire("model", 0.0);
    const auto other = waiting_for(*pool, "other");
    const auto next = waiting_for(*pool, "model");
    pool->release(only);
    in_time = Clock::now() - began < 2ms;
    if (in_time) {
      EXPECT_EQ(next->heard(), &only);
      EXPECT_EQ(other->heard(), nullptr);
    }
    pool->release(only);
    pool->release(only);
    EXPECT_EQ(pool->waiting(), 0U);
    pool->release(pool->acquire("other", 0.0));
  }
}

TEST(Fairness, AModelsTurnEndsHoweverManyOfItsCallersWait) {
  Fakes fakes(1);
  const auto pool = std::make_shared<Pool>(fakes.all());
  Interpreter& only = pool->acquire("model", 0.0);
  const auto other = waiting_for(*pool, "other");
  std::vector<std::shared_ptr<Listener>> more;
  for (int i = 0; i < 100; ++i) more.push_back(waiting_for(*pool, "model"));
  const auto began = Clock::now();
  size_t served = 0;
  while (other->heard() == nullptr && served < more.size()) {
    std::this_thread::sleep_for(300us);
    pool->release(only);
    ++served;
  }
  EXPECT_EQ(other->heard(), &only);
  EXPECT_LT(served, 20U);
  EXPECT_LT(Clock::now() - began, 1s);
  while (pool->waiting() > 0) pool->release(only);
  pool->release(only);
}

TEST(Fairness, EachOfAFewModelsKeepsToAnInterpreter) {
  Fakes fakes(2);
  const auto pool = std::make_shared<Pool>(fakes.all());
  for (const char* model : {"one", "two"}) {  // both have served both
    Interpreter& first = pool->acquire(model, 0.0);
    pool->release(pool->acquire(model, 0.0));
    pool->release(first);
  }
  const auto place = [&](const char* model) {
    Interpreter& taken = pool->acquire(model, 0.0);
    pool->release(taken);
    return taken.id();
  };
  const int one = place("one");
  const int two = place("two");
  EXPECT_NE(one, two);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(place("two"), two);
    EXPECT_EQ(place("one"), one);
  }
}

TEST(Fairness, TheNextInterpreterIsTheModelsThatHasHadLess) {
  Fakes fakes(2);
  const auto pool = std::make_shared<Pool>(fakes.all());
  Lessees greedy;
  for (int i = 0; i < 6; ++i) add(greedy, *pool, "greedy");
  Lessee quiet(*pool, "quiet");
  ASSERT_TRUE(eventually([&] { return pool->waiting() == 5; }));
  std::this_thread::sleep_for(5ms);  // the greedy one's turn is over
  greedy.front()->end();
  EXPECT_TRUE(eventually([&] { return quiet.has_one(); }));
  EXPECT_EQ(pool->waiting(), 4U);
  quiet.end();
  for (auto& one : greedy) one->end();
}

TEST(Fairness, AShareIsTheMostThatAModelHasAtOnce) {
  Fakes fakes(4);
  const auto pool = std::make_shared<Pool>(fakes.all());
  EXPECT_THROW(pool->set_share("greedy", 0), ArgumentError);
  pool->set_share("greedy", 2);
  Lessees greedy;
  for (int i = 0; i < 4; ++i) add(greedy, *pool, "greedy");
  EXPECT_EQ(having(greedy), 2U);
  try {
    pool->acquire("greedy", 0.0);
    FAIL() << "it has more than its share";
  } catch (const LeaseTimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("greedy has its share of them, 2"), std::string::npos)
        << error.what();
  }
  pool->release(pool->acquire("quiet", 0.0));
  pool->release(pool->acquire("greedy", 0.0, pool->instances().back()));  // asked for by number
  greedy[0]->end();
  EXPECT_TRUE(eventually([&] { return having(greedy) == 3; }));
  pool->set_share("greedy", 4);  // who waits gets it at once
  EXPECT_TRUE(eventually([&] { return having(greedy) == 4; }));
  greedy.clear();
  pool->forget("greedy");
  for (const auto& [name, model] : pool->models()) EXPECT_FALSE(model.share.has_value()) << name;
}

TEST(Fairness, AModelIsForgottenWithItsShareEvenWhileItWaits) {
  Fakes fakes(2);
  const auto pool = std::make_shared<Pool>(fakes.all());
  pool->set_share("model", 1);
  Lessees all;
  for (int i = 0; i < 2; ++i) add(all, *pool, "model");
  EXPECT_EQ(having(all), 1U);
  pool->forget("model");
  EXPECT_TRUE(eventually([&] { return having(all) == 2; }));
}

TEST(Fairness, AModelThatIsGoneInOneInterpreterKeepsItsCountersAndItsShare) {
  Fakes fakes(2);
  const auto pool = std::make_shared<Pool>(fakes.all());
  pool->set_share("model", 1);
  pool->release(pool->acquire("model", 0.0));
  pool->forget("model", pool->instances().front());
  const auto kept = pool->models().at("model");
  EXPECT_EQ(kept.counters.leases, 1U);
  EXPECT_EQ(kept.share, 1U);
  pool->forget("model");
  EXPECT_EQ(pool->models().count("model"), 0U);
  const std::vector<std::pair<std::string, bool>> once{{"model", true}};
  const std::vector<std::pair<std::string, bool>> twice{{"model", false}, {"model", true}};
  EXPECT_EQ(fakes[0].forgotten, twice);
  EXPECT_EQ(fakes[1].forgotten, once);
}

// A pool that may grow; what it starts are fakes.
class Growing {
 public:
  Growing(
      int min_size, int max_size, double park_after = 60, const std::function<void()>& parking = [] {})
      : fakes_(max_size) {
    for (auto& fake : fakes_) {
      fake->define("interpool.native.inside.parking", "park", [parking](const auto&) {
        parking();
        return Value();
      });
    }
    auto all = fakes_.all();
    spare_.assign(all.begin() + min_size, all.end());
    all.resize(static_cast<size_t>(min_size));
    PoolOptions options;
    options.max_size = static_cast<size_t>(max_size);
    options.park_after = park_after;
    options.start = [this]() -> Interpreter* {
      Interpreter* next = spare_.front();
      spare_.pop_front();
      return next;
    };
    pool_ = std::make_shared<Pool>(std::move(all), std::move(options));
  }
  ~Growing() {
    pool_->close();
    EXPECT_TRUE(eventually([&] { return pool_.use_count() == 1; }));  // the autoscaler has left
  }
  Pool* operator->() const { return pool_.get(); }
  Pool& operator*() const { return *pool_; }

 private:
  Fakes fakes_;
  std::deque<Interpreter*> spare_;  // for the autoscaler's thread
  std::shared_ptr<Pool> pool_;
};

TEST(Fairness, AModelThatOthersKeepWaitingGetsAReserve) {
  const Growing pool(2, 4);
  Lessees greedy;
  for (int i = 0; i < 6; ++i) add(greedy, *pool, "greedy");
  EXPECT_EQ(having(greedy), 2U);
  Lessee quiet(*pool, "quiet");
  EXPECT_TRUE(eventually([&] { return quiet.has_one(); }));  // though no lease has ended
  EXPECT_EQ(pool->size(), 3U);
  EXPECT_EQ(pool->reserve(), 1U);
  EXPECT_EQ(having(greedy), 2U);
  // While the quiet one is served, what the greedy one gives back is kept for others like it.
  greedy[0]->end();
  EXPECT_THROW(pool->acquire("greedy", 0.0), LeaseTimeoutError);
  EXPECT_EQ(having(greedy), 2U);
  pool->release(pool->acquire("another", 0.0));
  quiet.end();
  EXPECT_TRUE(eventually([&] { return having(greedy) == 3; }));
  EXPECT_EQ(pool->size(), 3U);
}

TEST(Fairness, TheReserveIsThereAtOnceTheNextTime) {
  const Growing pool(1, 2);
  Lessees greedy;
  for (int i = 0; i < 3; ++i) add(greedy, *pool, "greedy");
  pool->release(pool->acquire("quiet", std::nullopt));
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(1ms);  // what a lease counts at least is less
    pool->release(pool->acquire("quiet", 0.0));
  }
  EXPECT_EQ(having(greedy), 1U);
}

TEST(Fairness, WithOtherModelsTheReserveIsStartedBeforeOneComes) {
  const Growing pool(1, 3);
  pool->release(pool->acquire("quiet", 0.0));
  Lessees greedy;
  for (int i = 0; i < 3; ++i) add(greedy, *pool, "greedy");
  EXPECT_TRUE(eventually([&] { return pool->size() == 2; }));
  EXPECT_EQ(having(greedy), 1U);
  pool->release(pool->acquire("quiet", 0.0));
  EXPECT_EQ(pool->size(), 2U);
}

// Leases for 5 ms each, on twenty threads, for two models; the longest time in which none began.
Clock::duration longest_pause_of_short_calls(Pool& pool) {
  std::mutex mutex;
  const auto began = Clock::now();
  auto last = began;
  Clock::duration longest{};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&, model = i % 2 == 0 ? "one" : "two"] {
      while (Clock::now() - began < 500ms) {
        Interpreter& mine = pool.acquire(model, std::nullopt);
        {
          const std::lock_guard lock(mutex);
          longest = std::max(longest, Clock::now() - std::exchange(last, Clock::now()));
        }
        std::this_thread::sleep_for(5ms);
        pool.release(mine);
      }
    });
  }
  threads.clear();
  return longest;
}

TEST(Fairness, ModelsThatWaitForManyShortCallsGetNoReserve) {
  for (int i = 0; i < 20; ++i) {
    const Growing pool(1, 2);
    if (longest_pause_of_short_calls(*pool) < 30ms) {  // else this machine has stopped the test for as long
      EXPECT_EQ(pool->size(), 1U);
      return;
    }
  }
  GTEST_SKIP() << "no call was short on this machine";
}

TEST(Fairness, NothingIsStartedForAModelThatHasItsShare) {
  const Growing pool(2, 6);
  pool->release(pool->acquire("quiet", 0.0));
  pool->set_share("greedy", 1);
  Lessees greedy;
  for (int i = 0; i < 4; ++i) add(greedy, *pool, "greedy", /*sleeps=*/true);
  EXPECT_THROW(pool->acquire("greedy", 1.0), LeaseTimeoutError);  // the cores are unused all the while
  EXPECT_EQ(pool->size(), 2U);
}

TEST(Fairness, OneModelAloneGetsNoReserve) {
  const Growing pool(1, 4);
  Lessees all;
  for (int i = 0; i < 5; ++i) add(all, *pool, "model");
  EXPECT_THROW(pool->acquire("model", 0.3), LeaseTimeoutError);
  EXPECT_EQ(pool->reserve(), 0U);
}

TEST(Fairness, AnExactPoolNeverGrows) {
  const Growing pool(2, 2);
  Lessees all;
  for (int i = 0; i < 4; ++i) add(all, *pool, "greedy");
  EXPECT_THROW(pool->acquire("quiet", 0.3), LeaseTimeoutError);
  EXPECT_EQ(pool->size(), 2U);
}

TEST(Fairness, AModelWhoseCallsSleepLeavesOneOfThoseThatThePoolGrewBy) {
  const Growing pool(1, 4);
  pool->release(pool->acquire("quiet", 0.0));
  Lessees greedy;
  for (int i = 0; i < 6; ++i) greedy.push_back(std::make_unique<Lessee>(*pool, "greedy", /*sleeps=*/true));
  EXPECT_TRUE(eventually([&] { return having(greedy) == 3; }));
  pool->release(pool->acquire("quiet", 20.0));
  EXPECT_EQ(having(greedy), 3U);
  EXPECT_EQ(pool->reserve(), 1U);
}

TEST(Fairness, AModelThatCameLaterGetsOneOfThoseThatThePoolGrewBy) {
  const Growing pool(1, 3);
  Lessees greedy;
  for (int i = 0; i < 5; ++i) greedy.push_back(std::make_unique<Lessee>(*pool, "greedy", /*sleeps=*/true));
  EXPECT_TRUE(eventually([&] { return having(greedy) == 3; }));  // alone, it has them all
  Lessee quiet(*pool, "quiet");
  EXPECT_TRUE(eventually([&] { return pool->reserve() == 1; }));  // as soon as one comes back
  for (auto& one : greedy) {
    if (one->has_one()) {
      one->end();
      break;
    }
  }
  EXPECT_TRUE(eventually([&] { return quiet.has_one(); }));
  quiet.end();
  for (int i = 0; i < 3; ++i) pool->release(pool->acquire("quiet", 20.0));
  EXPECT_EQ(having(greedy), 3U);  // with the one that ended
}

TEST(Fairness, AnUnneededReserveIsParked) {
  const Growing pool(1, 3, 0.1);
  {
    Lessees greedy;
    for (int i = 0; i < 3; ++i) add(greedy, *pool, "greedy");
    pool->release(pool->acquire("quiet", std::nullopt));
    EXPECT_EQ(pool->size(), 2U);
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(pool->size(), 2U);  // a caller waits: another model may come
  }
  EXPECT_TRUE(eventually([&] { return pool->size() == 1; }));
  Lessees greedy;
  for (int i = 0; i < 3; ++i) add(greedy, *pool, "greedy");
  EXPECT_TRUE(eventually([&] { return pool->size() == 2; }));
  EXPECT_EQ(pool->instances().size(), 2U);  // it is not started a second time
}

TEST(Fairness, AModelThatHasWaitedForLongTakesTheReserveThoughNoLeaseEnds) {
  const Growing pool(8, 9);
  Lessees early;
  for (int i = 0; i < 8; ++i) add(early, *pool, "ahead", /*sleeps=*/true);
  Lessees rest;
  add(rest, *pool, "behind", /*sleeps=*/true);
  ASSERT_TRUE(eventually([&] { return rest.back()->has_one(); }));
  EXPECT_EQ(pool->reserve(), 1U);
  std::this_thread::sleep_for(300ms);  // in which one gets eight times as much as the other
  for (const auto& one : early) one->let_go();
  early.clear();
  // All that any caller may lease are leased: the free one is kept for those that have had less.
  for (int i = 0; i < 7; ++i) add(rest, *pool, "other " + std::to_string(i), /*sleeps=*/true);
  ASSERT_EQ(having(rest), 8U);
  EXPECT_THROW(pool->acquire("ahead", 0.0), LeaseTimeoutError);
  const auto listener = std::make_shared<Listener>();
  EXPECT_TRUE(pool->acquire_for("ahead", listener));
  EXPECT_EQ(listener->heard(), nullptr);  // nor is it given to who waits without a thread
  EXPECT_TRUE(pool->stop_waiting(*listener));
  pool->release(pool->acquire("ahead", 20.0));
  EXPECT_EQ(having(rest), 8U);
  const auto patient = std::make_shared<Listener>();
  EXPECT_TRUE(pool->acquire_for("ahead", patient));
  ASSERT_TRUE(eventually([&] { return patient->heard() != nullptr; }));
  EXPECT_EQ(having(rest), 8U);
  pool->release(*patient->heard());
}

// Grown to two, of which one is about to be parked, until `gate` opens.
struct Parking {
  Parking() {
    {
      Lessees greedy;
      for (int i = 0; i < 3; ++i) add(greedy, *pool, "greedy");
      pool->release(pool->acquire("quiet", std::nullopt));
      EXPECT_EQ(pool->size(), 2U);
    }
    EXPECT_TRUE(eventually([this] { return pool->size() == 1; }));
  }

  std::latch gate{1};
  std::atomic<bool> parked{false};
  const Growing pool{1, 2, 0.1, [this] {
                       gate.wait();
                       parked = true;
                     }};
};

TEST(Fairness, WhatIsBeingParkedIsLeasedWhenThatIsDone) {
  Parking parking;
  const Growing& pool = parking.pool;
  const int number = pool->instances().back();
  EXPECT_THROW(pool->acquire("", 0.2, number), LeaseTimeoutError);
  Interpreter& other = pool->acquire("", 0.0);  // all that is not parked is leased
  std::thread waits([&] {
    Interpreter& mine = pool->acquire("", std::nullopt, number);
    EXPECT_TRUE(parking.parked);
    EXPECT_EQ(mine.id(), number);
    pool->release(mine);
  });
  EXPECT_TRUE(eventually([&] { return pool->waiting() == 1; }));
  parking.gate.count_down();
  waits.join();
  pool->release(other);
}

TEST(Fairness, AGrowingPoolWaitsForWhatIsBeingParked) {
  Parking parking;
  const Growing& pool = parking.pool;
  Lessees greedy;
  for (int i = 0; i < 3; ++i) add(greedy, *pool, "greedy");
  std::thread quiet([&] {
    pool->release(pool->acquire("quiet", std::nullopt));
    EXPECT_TRUE(parking.parked);
  });
  std::this_thread::sleep_for(200ms);
  parking.gate.count_down();
  quiet.join();
  EXPECT_EQ(pool->instances().size(), 2U);  // it is not started a second time
}

TEST(Fairness, LosesNothingAmongManyModelsSharesAndTimeouts) {
  const Growing pool(2, 5, 0.02);
  std::vector<std::atomic<int>> users(6);
  std::atomic<int> together_now{0};
  const uint64_t seed = random_seed();
  pool->set_share("model 0", 1);
  together(12, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    for (int i = 0; i < 150; ++i) {
      const std::string model = "model " + std::to_string(chance.number(0, 3));
      try {
        Interpreter& mine = pool->acquire(model, static_cast<double>(chance.number(0, 20'000)) * 1e-6);
        EXPECT_EQ(users[static_cast<size_t>(mine.id())]++, 0) << "two threads have interpreter " << mine.id();
        if (model == "model 0") {
          EXPECT_EQ(together_now++, 0) << "more than its share";
        }
        std::this_thread::sleep_for(std::chrono::microseconds(chance.number(0, 300)));
        if (model == "model 0") --together_now;
        --users[static_cast<size_t>(mine.id())];
        pool->release(mine);
      } catch (const LeaseTimeoutError&) {
      }
    }
  });
  EXPECT_EQ(pool->waiting(), 0U);
  for (const auto& [name, model] : pool->models()) {
    EXPECT_EQ(model.running + model.waiting, 0U) << name;
  }
}

}  // namespace
}  // namespace interpool::testing
