// The interposer's table of interpreters: whose an object is, and which one a thread is in.
#include "interpose/interpreters.h"

#include <gtest/gtest.h>

#include <pthread.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>

#include "interpose/at_work.h"
#include "synthetic_objects.h"
#include "threads.h"

// What private copies call instead of the C library's.
extern "C" int ip_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                 void* (*function)(void*), void* argument);
// And what their std::threads start with.
extern "C" void ip_start_thread(std::thread* thread, std::thread::_State_ptr work, void (*depend)()) asm(
    "ip__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE");

namespace interpool::testing {
namespace {

constexpr InterpreterId kFirst = 1;
constexpr InterpreterId kSecond = 2;

// What each thread answers for interpreters 0 to 3.
thread_local std::array<bool, 4> holds_gil{};
thread_local std::array<bool, 4> knows_thread{};

template <InterpreterId id>
Route route(const Types& types) {
  Route made;
  made.id = id;
  made.type_type = &types.type;
  made.holds_gil = [] { return holds_gil[id]; };
  made.knows_thread = [] { return knows_thread[id]; };
  return made;
}

// The table lives as long as the process. Each test announces again the interpreters that it uses.
class InterpretersTest : public ::testing::Test {
 protected:
  InterpretersTest() {
    holds_gil = {};
    knows_thread = {};
    may_have_states(true);
    add_route(route<kHost>(host_));
    add_route(route<kFirst>(first_));
    add_route(route<kSecond>(second_));
  }
  ~InterpretersTest() override { enter_interpreter(kNone); }

  static InterpreterId owner(Object& object) {
    const Route* found = owner_of(object.as_python());
    return found == nullptr ? kNone : found->id;
  }

  Types host_;
  Types first_;
  Types second_;
  Types stranger_;
};

TEST_F(InterpretersTest, OwnObjectsWhoseTypesEndAtTheirs) {
  for (const auto& [types, id] :
       {std::pair<Types*, InterpreterId>{&host_, kHost}, {&first_, kFirst}, {&second_, kSecond}}) {
    EXPECT_EQ(owner(types->object), id);
    EXPECT_EQ(owner(types->object_with_meta), id);
    EXPECT_EQ(owner(types->of_metaclass), id);
    EXPECT_EQ(owner(types->metaclass), id);
    EXPECT_EQ(owner(types->type), id);
  }
}

TEST_F(InterpretersTest, OwnTheirObjectsWhicheverInterpreterAsks) {
  for (const InterpreterId here : {kNone, kHost, kFirst, kSecond, 7, kMaxInterpreters, -5}) {
    enter_interpreter(here);
    EXPECT_EQ(owner(first_.object), kFirst) << here;
    EXPECT_EQ(owner(second_.object), kSecond) << here;
    EXPECT_EQ(owner_of(stranger_.object.as_python()), nullptr) << here;
  }
}

TEST_F(InterpretersTest, BeyondTheTablesEndAreRefused) {
  Route route;
  route.id = kMaxInterpreters;
  EXPECT_THROW(add_route(route), std::out_of_range);
  route.id = kNone;
  EXPECT_THROW(add_route(route), std::out_of_range);
}

TEST_F(InterpretersTest, AnnouncedAgainReplaceTheirRoute) {
  const Route* before = route_of(kFirst);
  add_route(route<kFirst>(stranger_));
  EXPECT_EQ(owner(stranger_.object), kFirst);
  EXPECT_EQ(owner_of(first_.object.as_python()), nullptr);
  EXPECT_EQ(before->type_type, &first_.type);  // a thread that read it before may still use it
}

TEST_F(InterpretersTest, AreTheOneEnteredForTheThreadThatDid) {
  EXPECT_EQ(enter_interpreter(kSecond), kNone);
  EXPECT_EQ(current_interpreter(), kSecond);
  std::thread([] {
    EXPECT_EQ(current_interpreter(), kNone);
    enter_interpreter(kFirst);
    EXPECT_EQ(current_interpreter(), kFirst);
  }).join();
  EXPECT_EQ(enter_interpreter(kNone), kSecond);
  EXPECT_EQ(current_interpreter(), kNone);
}

TEST_F(InterpretersTest, AreTheOneWhoseGilAThreadHoldsIfItEnteredNone) {
  holds_gil[kSecond] = true;
  knows_thread = {true, true, true, false};
  EXPECT_EQ(current_interpreter(), kSecond);
  enter_interpreter(kFirst);
  EXPECT_EQ(current_interpreter(), kFirst);
}

TEST_F(InterpretersTest, AreTheFirstThatKnowsAThreadThatHoldsNoGil) {
  knows_thread[kSecond] = true;
  EXPECT_EQ(current_interpreter(), kSecond);
  knows_thread[kHost] = true;  // its threads keep states in slots they have visited
  EXPECT_EQ(current_interpreter(), kHost);
}

TEST_F(InterpretersTest, AreNotAskedForThreadsThatHaveNoStateInAny) {
  holds_gil[kFirst] = knows_thread[kFirst] = true;
  EXPECT_TRUE(may_have_states(false));
  EXPECT_EQ(current_interpreter(), kNone);
  knows_thread[kHost] = true;  // which announces no states
  EXPECT_EQ(current_interpreter(), kHost);
  EXPECT_FALSE(may_have_states(true));
  EXPECT_EQ(current_interpreter(), kFirst);
}

std::atomic<int> asked{0};

// The number of interpreters does not matter to a thread that a model has started, as none is asked.
TEST_F(InterpretersTest, AreNotAskedForThreadsThatWereStartedInOne) {
  for (InterpreterId id = 10; id < 200; ++id) {
    Route route;
    route.id = id;
    route.type_type = &stranger_.object;
    route.holds_gil = [] { return ++asked < 0; };
    route.knows_thread = [] { return ++asked < 0; };
    add_route(route);
  }
  enter_interpreter(kNone);
  EXPECT_EQ(current_interpreter(), kNone);
  EXPECT_GE(asked.exchange(0), 2 * 190);  // for a thread of no interpreter's, all are
  enter_interpreter(kSecond);
  pthread_t thread{};
  const auto work = [](void* object) -> void* {
    may_have_states(true);
    intptr_t right = 0;
    for (int i = 0; i < 100; ++i) {
      const Route* owner = owner_of(static_cast<Object*>(object)->as_python());
      right += current_interpreter() == kSecond && owner != nullptr && owner->id == kSecond ? 1 : 0;
    }
    return reinterpret_cast<void*>(right);
  };
  ASSERT_EQ(ip_pthread_create(&thread, nullptr, work, &second_.object), 0);
  void* right = nullptr;
  ASSERT_EQ(pthread_join(thread, &right), 0);
  EXPECT_EQ(reinterpret_cast<intptr_t>(right), 100);
  EXPECT_EQ(asked, 0);
  for (InterpreterId id = 10; id < 200; ++id) {  // as before, for the other tests
    Route route;
    route.id = id;
    route.holds_gil = [] { return false; };
    route.knows_thread = [] { return false; };
    add_route(route);
  }
}

// Until a test lets them end.
std::latch* ending = nullptr;

struct Waits final : std::thread::_State {
  void _M_run() override {
    EXPECT_EQ(current_interpreter(), kFirst);
    ending->wait();
  }
};

void* wait_and_return(void*) {
  ending->wait();
  return nullptr;
}

void* wait_and_exit(void*) {
  ending->wait();
  pthread_exit(nullptr);
}

TEST_F(InterpretersTest, HaveThreadsAtWorkThatWereStartedInThemUntilTheyEnd) {
  enter_interpreter(kFirst);
  EXPECT_FALSE(is_at_work(kFirst));
  for (void* (*const function)(void*) : {&wait_and_return, &wait_and_exit}) {
    std::latch open(1);
    ending = &open;
    pthread_t thread{};
    ASSERT_EQ(ip_pthread_create(&thread, nullptr, function, nullptr), 0);
    EXPECT_TRUE(is_at_work(kFirst));
    EXPECT_FALSE(is_at_work(kSecond));
    open.count_down();
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
    EXPECT_FALSE(is_at_work(kFirst));
  }
  std::latch open(1);
  ending = &open;
  std::thread thread;
  ip_start_thread(&thread, std::make_unique<Waits>(), nullptr);
  EXPECT_TRUE(is_at_work(kFirst));
  open.count_down();
  thread.join();
  EXPECT_FALSE(is_at_work(kFirst));
}

TEST_F(InterpretersTest, HaveNoThreadsAtWorkThatDidNotStart) {
  enter_interpreter(kFirst);
  pthread_attr_t too_large;
  pthread_attr_init(&too_large);
  pthread_attr_setstacksize(&too_large, size_t{1} << 60);
  pthread_t thread{};
  EXPECT_NE(ip_pthread_create(&thread, &too_large, &wait_and_return, nullptr), 0);
  pthread_attr_destroy(&too_large);
  EXPECT_FALSE(is_at_work(kFirst));
}

TEST_F(InterpretersTest, AreFoundWhileOthersAreAnnounced) {
  constexpr int kReaders = 4;
  constexpr InterpreterId kLast = 200;
  std::vector<Types> types(kLast + 1);
  std::atomic<InterpreterId> announced{kSecond};
  std::atomic<bool> done{false};
  std::atomic<int64_t> looked{0};
  together(kReaders + 1, [&](int me) {
    if (me == kReaders) {
      for (InterpreterId id = kSecond + 1; id <= kLast; ++id) {
        Route made = route<kFirst>(types[id]);
        made.id = id;
        add_route(made);
        announced = id;
        add_route(route<kFirst>(first_));  // replaced by its like, over and over
        std::this_thread::sleep_for(50us);
      }
      done = true;
      return;
    }
    while (!done) {
      const InterpreterId known = announced;
      for (InterpreterId id = kSecond + 1; id <= kLast; ++id) {
        const InterpreterId found = owner(types[id].object);
        // Those announced are found; those to come are found, or not yet: never another.
        if (found != id && (id <= known || found != kNone)) {
          ADD_FAILURE() << "an object of " << id << " was taken for " << found << "'s";
        }
      }
      EXPECT_EQ(owner(first_.object), kFirst);
      ++looked;
    }
  });
  EXPECT_GT(looked, 0);
  // The table outlives these types: nothing of them may be found any more.
  for (InterpreterId id = kSecond + 1; id <= kLast; ++id) {
    Route gone = route<kFirst>(stranger_);
    gone.id = id;
    gone.type_type = nullptr;
    add_route(gone);
  }
}

}  // namespace
}  // namespace interpool::testing
