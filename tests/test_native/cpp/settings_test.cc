// torch's settings of each interpreter: who has which, and when those that are done with are freed.
#include "interpose/settings.h"

#include <ATen/Context.h>
#include <ATen/DynamicLibrary.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "interpose/at_work.h"
#include "threads.h"

namespace interpool::testing {
namespace {

constexpr InterpreterId kHere = 5;

// What private copies call in the place of torch's own.
at::Context& context_here() {
  static const auto function =
      reinterpret_cast<at::Context& (*)()>(dlsym(RTLD_DEFAULT, "ip__ZN2at13globalContextEv"));
  return function();
}
void set_default_dtype_here(caffe2::TypeMeta dtype) {
  static const auto function = reinterpret_cast<void (*)(caffe2::TypeMeta)>(
      dlsym(RTLD_DEFAULT, "ip__ZN3c1017set_default_dtypeEN6caffe28TypeMetaE"));
  function(dtype);
}

// A visit of the calling thread's.
class Visit {
 public:
  explicit Visit(InterpreterId id) {
    enter_settings(id, outside_);
    before_ = enter_interpreter(id);
  }
  ~Visit() {
    enter_interpreter(before_);
    leave_settings(outside_);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  ThreadSettings outside_;
  InterpreterId before_ = kNone;
};

TEST(Settings, OfALibraryThatTorchLoadsWhenNeededAreTheInterpretersToo) {
  install_router();
  use_settings(kHere, "");
  const at::DynamicLibrary loaded(FAKE_LINALG, nullptr, true);
  void* const library = dlopen(FAKE_LINALG, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto ask = reinterpret_cast<const void* (*)()>(dlsym(library, "context_of_fake_library"));
  ASSERT_NE(ask, nullptr);
  const void* const of_the_process = ask();
  EXPECT_EQ(of_the_process, &at::globalContext());
  const Visit visit(kHere);
  EXPECT_EQ(ask(), &context_here());
  EXPECT_NE(ask(), of_the_process);
}

TEST(Settings, AreKeptAsLongAsAThreadMayReadThem) {
  use_settings(kHere, "");
  std::latch looking(1);
  std::latch replaced(1);
  std::thread reader([&] {
    const Visit visit(kHere);
    at::Context& context = context_here();
    context.setDeterministicCuDNN(true);
    looking.count_down();
    replaced.wait();
    EXPECT_TRUE(context.deterministicCuDNN());
  });
  looking.wait();
  for (int i = 0; i < 100; ++i) {  // each of them is changed, and so replaced by the next
    use_settings(kHere, "");
    const Visit visit(kHere);
    EXPECT_FALSE(context_here().deterministicCuDNN());
    context_here().setDeterministicCuDNN(true);
  }
  replaced.count_down();
  reader.join();
  EXPECT_FALSE(is_at_work(kHere));
}

#if __GLIBC_PREREQ(2, 33)  // has mallinfo2
TEST(Settings, AreNotKeptForEverForAThreadThatStays) {
  std::latch ending(1);
  std::latch there(1);
  std::thread stays([&] {
    const Visit visit(kHere);
    there.count_down();
    ending.wait();
  });
  there.wait();
  auto replaced = [now = std::chrono::steady_clock::now()](int times) mutable {
    for (int i = 0; i < times; ++i) {
      use_settings(kHere, "", now += 1s);
      const Visit visit(kHere);
      context_here().setDeterministicCuDNN(true);
    }
    return mallinfo2().uordblks;
  };
  const size_t before = replaced(1000);
  EXPECT_LT(replaced(10'000), before + (4U << 20U));
  ending.count_down();
  stays.join();
}
#endif

TEST(Settings, AreReadWhileTheyAreReplaced) {
  constexpr int kTimes = 2000;
  use_settings(kHere, "");  // what another test has changed is not looked at
  std::atomic<bool> ending{false};
  together(4, [&](int me) {
    if (me > 0) {
      while (!ending) {
        const Visit visit(kHere);
        EXPECT_FALSE(context_here().deterministicCuDNN());
      }
      return;
    }
    for (int i = 0; i < kTimes; ++i) {
      use_settings(kHere, "");
      {
        const Visit visit(kHere);
        set_default_dtype_here(caffe2::TypeMeta::Make<double>());  // so they are replaced
      }
      use_settings(kHere, "model");
      use_settings(kHere, "");
      forget_settings(kHere, "model");
    }
    ending = true;
  });
  EXPECT_FALSE(is_at_work(kHere));
}

}  // namespace
}  // namespace interpool::testing
