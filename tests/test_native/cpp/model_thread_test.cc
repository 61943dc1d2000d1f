// The threads on which models' calls run: one for each model in each interpreter.
#include "core/model_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <set>
#include <stdexcept>
#include <tuple>

#include "fake_interpreter.h"
#include "threads.h"

namespace interpool::testing {
namespace {

int this_thread() {
  return static_cast<int>(syscall(SYS_gettid));
}

int number_of(ModelThread& thread) {
  int number = 0;
  thread.run([&] { number = this_thread(); });
  return number;
}

class ModelThreadTest : public ::testing::Test {
 protected:
  ModelThreadTest() : fakes_(2) {}
  ~ModelThreadTest() override {
    for (auto& fake : fakes_) ModelThread::forget_all(*fake);
  }

  // Of this process, by the name that they have.
  static std::set<int> model_threads() {
    std::set<int> numbers;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (name == "interpool-model") numbers.insert(std::stoi(task.path().filename()));
    }
    return numbers;
  }
  static bool has_ended(int number) {
    return eventually([&] { return model_threads().count(number) == 0; });
  }

  Fakes fakes_;
};

TEST_F(ModelThreadTest, HasNothingOfTheModelOnWhoseThreadItIsStarted) {
  using Nature = std::tuple<mode_t, int, std::filesystem::path>;
  const auto nature = [] {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return Nature(mask, ::getpriority(PRIO_PROCESS, 0), std::filesystem::current_path());
  };
  const Nature usual = nature();
  Nature models;
  Nature others;
  ModelThread::of(fakes_[0], "m")->run([&] {
    ::umask(0);
    std::filesystem::current_path("/proc");
    EXPECT_EQ(::setpriority(PRIO_PROCESS, 0, 5), 0);
    ModelThread::of(fakes_[0], "other")->run([&] { others = nature(); });
    models = nature();
  });
  EXPECT_EQ(models, Nature(0, 5, "/proc"));
  EXPECT_EQ(others, usual);
  EXPECT_EQ(nature(), usual);
}

TEST_F(ModelThreadTest, DoesWhatEachGivesItInThatOnesOrder) {
  constexpr int kGivers = 6;
  constexpr int kWorks = 300;
  const auto thread = ModelThread::of(fakes_[0], "m");
  std::vector<std::vector<int>> done(kGivers);  // written by the one thread only
  together(kGivers, [&](int me) {
    auto& mine = done[static_cast<size_t>(me)];
    for (int i = 0; i < kWorks; ++i) {
      if (i % 10 == 9) {
        thread->run([&] { mine.push_back(i); });
        EXPECT_EQ(mine.size(), static_cast<size_t>(i) + 1);
      } else {
        thread->post([&mine, i] { mine.push_back(i); });
      }
    }
  });
  for (const auto& mine : done) {
    EXPECT_EQ(mine.size(), static_cast<size_t>(kWorks));
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
  }
}

TEST_F(ModelThreadTest, HandsOverWhatWorkThrowsAndGoesOn) {
  const auto thread = ModelThread::of(fakes_[0], "m");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(thread->run([] { throw std::runtime_error("no"); }), std::runtime_error);
  }
  bool ran = false;
  thread->run([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST_F(ModelThreadTest, ReportsWhatPostedWorkThrowsAndGoesOn) {
  const auto thread = ModelThread::of(fakes_[0], "m");
  ::testing::internal::CaptureStderr();
  thread->post([] { throw std::runtime_error("of the work's"); });
  bool ran = false;
  thread->run([&] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "interpool: of the work's\n");
}

TEST_F(ModelThreadTest, IsOneForAllWhoAskForItAtOnceAndTheOthersEnd) {
  const std::set<int> before = model_threads();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<ModelThread>> got(8);
    together(8, [&](int me) { got[static_cast<size_t>(me)] = ModelThread::of(fakes_[0], "m"); });
    for (const auto& one : got) EXPECT_EQ(one, got.front());
    ModelThread::forget(fakes_[0], "m");
  }
  EXPECT_TRUE(eventually([&] {
    const std::set<int> now = model_threads();
    return std::includes(before.begin(), before.end(), now.begin(), now.end());
  })) << model_threads().size()
      << " model threads are left, and before there were " << before.size();
}

TEST_F(ModelThreadTest, EndsWhenItIsForgottenAfterWhatItWasGiven) {
  std::latch running(1);
  std::latch go_on(1);
  std::atomic<int> done{0};
  auto thread = ModelThread::of(fakes_[0], "m");
  const int number = number_of(*thread);
  thread->post([&] {
    running.count_down();
    go_on.wait();
    ++done;
  });
  thread->post([&] { ++done; });
  running.wait();
  thread.reset();
  ModelThread::forget(fakes_[0], "m");  // does not wait for it
  EXPECT_NE(number_of(*ModelThread::of(fakes_[0], "m")), number);
  EXPECT_EQ(done, 0);
  go_on.count_down();
  EXPECT_TRUE(has_ended(number));
  EXPECT_EQ(done, 2);
}

TEST_F(ModelThreadTest, ForgottenWithItsInterpreterLeavesThoseOfOthers) {
  std::vector<int> gone;
  for (const char* model : {"", "m", "n"}) gone.push_back(number_of(*ModelThread::of(fakes_[0], model)));
  const auto stays = ModelThread::of(fakes_[1], "m");
  ModelThread::forget_all(fakes_[0]);
  for (const int number : gone) EXPECT_TRUE(has_ended(number));
  EXPECT_EQ(ModelThread::of(fakes_[1], "m"), stays);
}

TEST_F(ModelThreadTest, IsUsedWhileOthersForgetIt) {
  const uint64_t seed = random_seed();
  std::atomic<int> ran{0};
  std::atomic<int> given{0};
  together(6, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    for (int i = 0; i < 200; ++i) {
      FakeInterpreter& fake = fakes_[static_cast<size_t>(chance.number(0, 1))];
      const std::string model(1, static_cast<char>('a' + chance.number(0, 2)));
      switch (chance.number(0, 5)) {
        case 0:
          ModelThread::forget(fake, model);
          break;
        case 1:
          ModelThread::forget_all(fake);
          break;
        case 2:
          ++given;
          ModelThread::of(fake, model)->post([&] { ++ran; });
          break;
        default:
          ++given;
          ModelThread::of(fake, model)->run([&] { ++ran; });
      }
    }
  });
  EXPECT_TRUE(eventually([&] { return ran == given; })) << ran << " of " << given;
}

}  // namespace
}  // namespace interpool::testing
