// Archives as a process maps them: what becomes of the file does not matter to those who have it.
#include "core/snapshots.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <optional>

#include "threads.h"

namespace {

// What a clone of a file is, unless the kernel is to make it.
std::optional<std::string> cloned;

// What the calling thread does first if a file is to be cloned.
thread_local std::function<void()> before_cloning;

}  // namespace

// In the place of the C library's.
extern "C" int ioctl(int file, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  const long argument = va_arg(rest, long);
  va_end(rest);
  if (request == FICLONE && before_cloning) {
    before_cloning();
  }
  if (request == FICLONE && cloned.has_value()) {
    return ::write(file, cloned->data(), cloned->size()) == static_cast<ssize_t>(cloned->size()) ? 0 : -1;
  }
  return static_cast<int>(::syscall(SYS_ioctl, file, request, argument));
}

namespace interpool::testing {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const Snapshot& snapshot) {
  std::string bytes(snapshot.bytes, '\0');
  EXPECT_EQ(::pread(snapshot.fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return bytes;
}

class SnapshotsTest : public ::testing::Test {
 protected:
  SnapshotsTest() {
    std::string name = (fs::temp_directory_path() / "interpool-snapshots-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    write("as it was");
  }
  ~SnapshotsTest() override { fs::remove_all(folder_); }

  std::string path() const { return folder_ / "archive.pt"; }
  void write(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    // Its own time of change, however coarse the file system's clock.
    static std::atomic<int64_t> seconds{1};
    const timespec times[2] = {{++seconds, 0}, {seconds, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path().c_str(), times, 0), 0);
  }
  // What refuse() says of it.
  std::string refusal(const std::string& of) {
    try {
      snapshots_.take(of);
    } catch (const ArchiveError& error) {
      return error.what();
    }
    return "it was taken";
  }

  fs::path folder_;
  Snapshots snapshots_;
};

TEST_F(SnapshotsTest, AreOneForEachStateOfTheFile) {
  const auto first = snapshots_.take(path());
  EXPECT_EQ(snapshots_.take(path()), first);
  fs::create_hard_link(path(), folder_ / "other name");
  EXPECT_EQ(snapshots_.take(folder_ / "other name"), first);
  write("as it is now");
  const auto second = snapshots_.take(path());
  EXPECT_NE(second->number, first->number);
  EXPECT_EQ(bytes_of(*second), "as it is now");
  EXPECT_EQ(bytes_of(*first), "as it was");
}

TEST_F(SnapshotsTest, OpenGivesWhatThePathMeantAsLongAsItIsHeld) {
  auto first = snapshots_.open(path());
  write("as it is now");
  EXPECT_EQ(snapshots_.open(path()), first);
  fs::remove(path());
  EXPECT_EQ(snapshots_.open(path()), first);
  first.reset();
  EXPECT_THROW(snapshots_.open(path()), ArchiveError);
  write("made anew");
  EXPECT_EQ(bytes_of(*snapshots_.open(path())), "made anew");
}

TEST_F(SnapshotsTest, AreFoundByNumberAsLongAsTheyAreHeld) {
  auto snapshot = snapshots_.take(path());
  const uint64_t number = snapshot->number;
  EXPECT_EQ(snapshots_.find(number, path()), snapshot);
  snapshot.reset();
  EXPECT_THROW(snapshots_.find(number, path()), ArchiveError);
  EXPECT_NE(snapshots_.take(path())->number, number);  // numbers are not used again
}

TEST_F(SnapshotsTest, CloseTheirFileWithTheLastReference) {
  auto snapshot = snapshots_.take(path());
  const auto again = std::make_unique<std::shared_ptr<const Snapshot>>(snapshots_.take(path()));
  const int fd = snapshot->fd;
  snapshot.reset();
  EXPECT_NE(::fcntl(fd, F_GETFD), -1);
  again->reset();
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST_F(SnapshotsTest, RefuseACloneOfWhatBecameShorter) {
  cloned = "as it";
  EXPECT_NE(refusal(path()).find("became shorter while it was being opened"), std::string::npos);
  cloned = "as it was, and more";
  EXPECT_EQ(bytes_of(*snapshots_.take(path())), "as it was");
  cloned.reset();
}

TEST_F(SnapshotsTest, WhoseCopyLastsKeepWaitingOnlyThoseWhoNeedTheSameFile) {
  const std::string other = folder_ / "other.pt";
  std::ofstream(other, std::ios::binary) << "of another file";
  std::latch begun(1);
  std::latch go_on(1);
  std::shared_ptr<const Snapshot> first;
  std::shared_ptr<const Snapshot> second;
  std::atomic<bool> second_has_it{false};
  std::atomic<bool> other_was_taken{false};
  std::thread copying([&] {
    before_cloning = [&] {
      begun.count_down();
      go_on.wait();
    };
    first = snapshots_.open(path());
  });
  begun.wait();
  std::thread waiting([&] {
    second = snapshots_.open(path());
    second_has_it = true;
  });
  std::thread taking([&] {
    EXPECT_EQ(bytes_of(*snapshots_.take(other)), "of another file");
    other_was_taken = true;
  });
  EXPECT_TRUE(eventually([&] { return other_was_taken.load(); }, 10s));
  EXPECT_FALSE(second_has_it);
  go_on.count_down();
  for (std::thread* each : {&copying, &waiting, &taking}) each->join();
  EXPECT_EQ(first, second);
  EXPECT_EQ(bytes_of(*first), "as it was");
}

TEST_F(SnapshotsTest, ThatCouldNotBeCopiedAreTriedByTheNext) {
  std::latch begun(1);
  std::latch go_on(1);
  std::thread failing([&] {
    before_cloning = [&] {
      begun.count_down();
      go_on.wait();
      cloned = "as it";
    };
    EXPECT_NE(refusal(path()).find("became shorter"), std::string::npos);
  });
  begun.wait();
  std::thread next([&] {
    before_cloning = [&] { cloned.reset(); };
    EXPECT_EQ(bytes_of(*snapshots_.take(path())), "as it was");
  });
  go_on.count_down();
  failing.join();
  next.join();
}

TEST_F(SnapshotsTest, OpenedAtOnceMeanOneStateOfTheFile) {
  std::latch begun(1);
  std::latch go_on(1);
  std::shared_ptr<const Snapshot> first;
  std::thread copying([&] {
    before_cloning = [&] {
      begun.count_down();
      go_on.wait();
    };
    first = snapshots_.open(path());
  });
  begun.wait();
  const std::string as_it_was = path() + ".before";
  fs::rename(path(), as_it_was);
  write("as it is now");
  const auto second = snapshots_.open(path());
  go_on.count_down();
  copying.join();
  EXPECT_EQ(first, second);
  EXPECT_EQ(snapshots_.open(path()), second);
}

TEST_F(SnapshotsTest, AreTakenOnceByManyThreads) {
  for (int round = 0; round < 10; ++round) {
    write("round " + std::to_string(round));
    std::vector<std::shared_ptr<const Snapshot>> taken(8);
    together(8, [&](int me) { taken[me] = me % 2 == 0 ? snapshots_.take(path()) : snapshots_.open(path()); });
    for (const auto& snapshot : taken) EXPECT_EQ(snapshot, taken[0]);
    EXPECT_EQ(bytes_of(*taken[0]), "round " + std::to_string(round));
  }
}

}  // namespace
}  // namespace interpool::testing
