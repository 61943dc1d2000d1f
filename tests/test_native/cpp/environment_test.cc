// The process's environment, changed by interpreters and read by any code, without a lock.
#include "interpose/environment.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>

#include "threads.h"

// What private copies call instead of the C library's.
extern "C" {
int ip_setenv(const char* name, const char* value, int overwrite);
int ip_unsetenv(const char* name);
int ip_putenv(char* text);
int ip_clearenv();
}

namespace interpool::testing {
namespace {

std::string value_of(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "(none)";
}

// As C libraries walk it, while other threads change it.
template <typename Each>
void each_entry(const Each& each) {
  for (char** at = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);; ++at) {
    const char* const entry = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    if (entry == nullptr) return;
    each(std::string_view(entry));
  }
}

class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    each_entry([&](std::string_view entry) {
      const size_t end = entry.find('=');
      before_[std::string(entry.substr(0, end))] = entry.substr(end + 1);
    });
  }
  ~EnvironmentTest() override {
    ip_clearenv();
    for (const auto& [name, value] : before_) ip_setenv(name.c_str(), value.c_str(), 1);
  }

  std::map<std::string, std::string> before_;
};

TEST_F(EnvironmentTest, IsChangedAsTheCLibraryDoes) {
  EXPECT_EQ(ip_setenv("IP_ONE", "1", 0), 0);
  EXPECT_EQ(value_of("IP_ONE"), "1");
  EXPECT_EQ(ip_setenv("IP_ONE", "2", 0), 0);
  EXPECT_EQ(value_of("IP_ONE"), "1");
  EXPECT_EQ(ip_setenv("IP_ONE", "2", 1), 0);
  EXPECT_EQ(value_of("IP_ONE"), "2");
  EXPECT_EQ(ip_setenv("IP_ON", "shorter", 1), 0);
  EXPECT_EQ(value_of("IP_ONE"), "2");
  EXPECT_EQ(ip_unsetenv("IP_ONE"), 0);
  EXPECT_EQ(value_of("IP_ONE"), "(none)");
  EXPECT_EQ(value_of("IP_ON"), "shorter");
  EXPECT_EQ(ip_unsetenv("IP_ONE"), 0);  // nothing to do
  EXPECT_EQ(ip_setenv("IP_EMPTY", "", 1), 0);
  EXPECT_EQ(value_of("IP_EMPTY"), "");
}

TEST_F(EnvironmentTest, HasNoNamesThatAreNone) {
  for (const char* name : {"", "A=B", static_cast<const char*>(nullptr)}) {
    errno = 0;
    EXPECT_EQ(ip_setenv(name, "1", 1), -1);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(ip_unsetenv(name), -1);
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST_F(EnvironmentTest, KeepsACopyOfWhatIsPut) {
  std::string text = "IP_PUT=first";
  EXPECT_EQ(ip_putenv(text.data()), 0);
  text = "IP_PUT=changed";
  EXPECT_EQ(value_of("IP_PUT"), "first");
  std::string name = "IP_PUT";  // without a value: away with it
  EXPECT_EQ(ip_putenv(name.data()), 0);
  EXPECT_EQ(value_of("IP_PUT"), "(none)");
}

TEST_F(EnvironmentTest, IsEmptyWhenItIsClearedAndTakesMore) {
  EXPECT_EQ(ip_clearenv(), 0);
  each_entry([](std::string_view entry) { ADD_FAILURE() << entry; });
  EXPECT_EQ(ip_setenv("IP_FIRST", "1", 1), 0);
  EXPECT_EQ(value_of("IP_FIRST"), "1");
}

// CPython 3.13's posix_spawn frees an array, and its strings, that is not the one that it began with.
TEST_F(EnvironmentTest, StaysWhereItIs) {
  own_environment();
  char** const place = environ;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 500; ++i) EXPECT_EQ(ip_setenv(("IP_" + std::to_string(i)).c_str(), "x", 1), 0);
    for (int i = 0; i < 500; ++i) EXPECT_EQ(ip_unsetenv(("IP_" + std::to_string(i)).c_str()), 0);
    for (const auto& [name, value] : before_) EXPECT_EQ(value_of(name), value);
  }
  EXPECT_EQ(ip_clearenv(), 0);
  EXPECT_EQ(ip_setenv("IP_ONE", "1", 1), 0);
  EXPECT_EQ(ip_unsetenv("IP_ONE"), 0);
  EXPECT_EQ(value_of("IP_ONE"), "(none)");
  EXPECT_EQ(environ, place);
}

// What goes leaves its place to what comes: nothing grows.
TEST_F(EnvironmentTest, IsNoLongerThanItsVariablesEverWere) {
  ip_setenv("IP_A", "1", 1);
  ip_setenv("IP_B", "1", 1);
  const auto length = [] {
    size_t entries = 0;
    each_entry([&](std::string_view) { ++entries; });
    return entries;
  };
  const size_t most = length();
  for (int i = 0; i < 100; ++i) {
    ip_unsetenv("IP_A");
    EXPECT_EQ(value_of("IP_A"), "(none)");
    ip_unsetenv("IP_B");
    EXPECT_EQ(value_of("IP_B"), "(none)");
    ip_setenv("IP_B", std::to_string(i).c_str(), 1);
    ip_setenv("IP_A", "1", 1);
    EXPECT_EQ(value_of("IP_B"), std::to_string(i));
    EXPECT_EQ(value_of("IP_A"), "1");
    EXPECT_EQ(length(), most);
  }
}

// A thread that was about to change it is not in the child, and holds nothing there.
TEST_F(EnvironmentTest, IsChangedInChildrenThatWereForkedMeanwhile) {
  constexpr int kWriters = 2;
  std::atomic<bool> over{false};
  together(kWriters + 1, [&](int me) {
    for (int i = 0; me < kWriters && !over; ++i) {
      ip_setenv(("IP_" + std::to_string(i % 50)).c_str(), "x", 1);
      ip_unsetenv(("IP_" + std::to_string(i * 7 % 50)).c_str());
    }
    for (int i = 0; me == kWriters && i < 100; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(60);  // ends it, if it waits
        _exit(ip_setenv("IP_CHILD", "1", 1));
      }
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
      over = i == 99 || status != 0;
      if (over) return;
    }
  });
}

// A reader sees each variable as it was, or is: never a part of a value, and never less than those that stay.
TEST_F(EnvironmentTest, IsReadWholeWhileItIsChanged) {
  constexpr int kWriters = 3;
  constexpr int kReaders = 3;
  const uint64_t seed = random_seed();
  ip_setenv("IP_STAYS", "ssss", 1);
  std::atomic<int> writing{kWriters};
  together(kWriters + kReaders, [&](int me) {
    if (me < kWriters) {
      Chance chance(seed + static_cast<uint64_t>(me));
      for (int i = 0; i < 3000; ++i) {
        const std::string name = "IP_" + std::to_string(me) + "_" + std::to_string(chance.number(0, 40));
        const auto letter = static_cast<char>('a' + chance.number(0, 25));
        if (chance.number(0, 3) == 0) {
          ip_unsetenv(name.c_str());
        } else {
          const std::string value(static_cast<size_t>(chance.number(1, 60)), letter);
          ip_setenv(name.c_str(), value.c_str(), 1);
          EXPECT_EQ(value_of(name), value);  // no other's
        }
      }
      --writing;
      return;
    }
    do {
      std::set<std::string_view> found;  // some may be met twice
      each_entry([&](std::string_view entry) {
        const std::string_view name = entry.substr(0, entry.find('='));
        if (name.starts_with("IP_")) {
          const std::string_view value = entry.substr(name.size() + 1);
          EXPECT_TRUE(!value.empty() && value.find_first_not_of(value[0]) == std::string_view::npos) << entry;
        }
        if (before_.contains(std::string(name))) found.insert(name);
      });
      EXPECT_EQ(found.size(), before_.size());
      EXPECT_EQ(value_of("IP_STAYS"), "ssss");
    } while (writing > 0);
  });
}

}  // namespace
}  // namespace interpool::testing
