// Record locks of files, on which databases stand: an interpreter's, as though it were a process.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

#include "copies.h"
#include "threads.h"

namespace {
std::function<void()> load_work;  // what loading.cc's library does
}  // namespace

extern "C" __attribute__((visibility("default"))) void while_loading() {
  load_work();
}

namespace interpool::testing {
namespace {

// Does a thread of this process wait for something?
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = all.rfind(')');  // number (name) state ...
  return name_end != std::string::npos && all.compare(name_end, 3, ") S") == 0;
}

class RecordLocksTest : public ::testing::Test {
 protected:
  RecordLocksTest() {
    std::string name = (std::filesystem::temp_directory_path() / "record_locks_XXXXXX").string();
    const int made = ::mkstemp(name.data());
    if (made < 0 || ::ftruncate(made, 100) != 0) std::abort();
    ::close(made);
    path_ = name;
  }
  ~RecordLocksTest() override { std::filesystem::remove(path_); }

  int open(int flags = O_RDWR) const { return ::open(path_.c_str(), flags | O_CLOEXEC); }

  // 0, or the error.
  static int lock(const Copy& copy, int fd, short kind, off_t start = 0, off_t length = 0,
                  int command = F_SETLK) {
    struct flock record{};
    record.l_type = kind;
    record.l_whence = SEEK_SET;
    record.l_start = start;
    record.l_len = length;
    return copy.lock(fd, command, &record) == 0 ? 0 : errno;
  }
  // Whether another process may lock all of it.
  bool is_free() const {
    const int fd = open();
    struct flock record{};
    record.l_type = F_WRLCK;
    const bool asked = ::fcntl(fd, F_GETLK, &record) == 0;
    struct flock others{};
    others.l_type = F_WRLCK;
    const bool asked_again = ::fcntl(fd, F_OFD_GETLK, &others) == 0;
    ::close(fd);
    EXPECT_TRUE(asked && asked_again);
    return record.l_type == F_UNLCK && others.l_type == F_UNLCK;
  }
  // Descriptors of this process that are open on it.
  int descriptors() const {
    int count = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += std::filesystem::read_symlink(each.path(), gone) == path_ ? 1 : 0;
    }
    return count;
  }

  const Copy& one_ = copies()[0];
  const Copy& other_ = copies()[1];
  std::filesystem::path path_;
};

TEST_F(RecordLocksTest, AreRefusedIfTheDescriptorDoesNotAllowThem) {
  const int reads = open(O_RDONLY);
  const int writes = open(O_WRONLY);
  EXPECT_EQ(lock(one_, reads, F_WRLCK), EBADF);
  EXPECT_EQ(lock(one_, writes, F_RDLCK), EBADF);
  EXPECT_EQ(lock(one_, reads, F_RDLCK), 0);
  EXPECT_EQ(lock(one_, -1, F_RDLCK), EBADF);
  EXPECT_EQ(one_.close(-1), -1);
  EXPECT_EQ(errno, EBADF);
  one_.close(reads);
  one_.close(writes);
  EXPECT_EQ(descriptors(), 0);
}

// The dynamic linker has a lock of its own, which it holds while static objects begin. A thread that asks to
// which library some code belongs waits for it.
TEST_F(RecordLocksTest, EndWhileALibraryIsLoadedThatClosesTheirFile) {
  const int first = open();
  const int second = open();
  EXPECT_EQ(lock(one_, first, F_WRLCK), 0);
  std::atomic<pid_t> closer{0};
  std::thread closes;
  load_work = [&] {
    closes = std::thread([&] {
      closer = static_cast<pid_t>(::syscall(SYS_gettid));
      EXPECT_EQ(one_.close(first), 0);
    });
    EXPECT_TRUE(eventually([&] { return closer != 0 && is_asleep(closer); }));  // it waits for the linker
    EXPECT_EQ(one_.close(second), 0);
  };
  std::atomic<bool> loaded{false};
  std::thread loads([&] {
    void* const library = ::dlopen(LOADING, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << ::dlerror();
    if (library != nullptr) ::dlclose(library);
    loaded = true;
  });
  ASSERT_TRUE(eventually([&] { return loaded.load(); }, 60s)) << "two threads wait for each other";
  loads.join();
  ASSERT_TRUE(closes.joinable());
  closes.join();
  EXPECT_TRUE(is_free());
  EXPECT_EQ(descriptors(), 0);
}

// Lost updates would show.
TEST_F(RecordLocksTest, MakeInterpretersTakeTurns) {
  constexpr int kTurns = 300;
  together(2, [&](int me) {
    const Copy& copy = copies()[static_cast<size_t>(me)];
    for (int i = 0; i < kTurns; ++i) {
      const int fd = open();
      EXPECT_EQ(lock(copy, fd, F_WRLCK, 0, 8, F_SETLKW), 0);
      int64_t count = 0;
      EXPECT_EQ(::pread(fd, &count, sizeof count, 0), 8);
      ++count;
      EXPECT_EQ(::pwrite(fd, &count, sizeof count, 0), 8);
      if (i % 2 == 0) {
        EXPECT_EQ(lock(copy, fd, F_UNLCK, 0, 8), 0);
      }
      EXPECT_EQ(copy.close(fd), 0);
    }
  });
  const int fd = open();
  int64_t count = 0;
  EXPECT_EQ(::pread(fd, &count, sizeof count, 0), 8);
  EXPECT_EQ(count, 2 * kTurns);
  ::close(fd);
}

TEST_F(RecordLocksTest, LeaveNothingBehindAfterManyThreads) {
  const uint64_t seed = random_seed();
  together(6, [&](int me) {
    Chance chance(seed + static_cast<uint64_t>(me));
    const Copy& copy = copies()[static_cast<size_t>(me % 2)];
    for (int i = 0; i < 200; ++i) {
      const int fd = open();
      for (int64_t n = chance.number(0, 3); n > 0; --n) {
        const short kind =
            std::array<short, 3>{F_RDLCK, F_WRLCK, F_UNLCK}[static_cast<size_t>(chance.number(0, 2))];
        const int result = lock(copy, fd, kind, chance.number(0, 50), chance.number(0, 50));
        EXPECT_TRUE(result == 0 || result == EAGAIN) << result;
      }
      EXPECT_EQ(copy.close(fd), 0);
    }
  });
  EXPECT_TRUE(is_free());
  EXPECT_EQ(descriptors(), 0);
}

}  // namespace
}  // namespace interpool::testing
