// Memory of equal storages of several interpreters: found, made, and forgotten.
#include "core/shared_storages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <system_error>

#include "threads.h"

namespace interpool::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

// What an interpreter has loaded.
struct Loaded {
  std::vector<std::string> storages;

  std::vector<Piece> pieces() const {
    std::vector<Piece> all;
    for (const std::string& bytes : storages) {
      all.push_back({bytes.data(), {bytes.size(), std::hash<std::string>()(bytes)}});
    }
    return all;
  }
};

std::string bytes_at(const Placement& placement, size_t bytes) {
  std::string found(bytes, '\0');
  EXPECT_EQ(::pread(placement.part->fd, found.data(), bytes, static_cast<off_t>(placement.offset)),
            static_cast<ssize_t>(bytes));
  return found;
}

bool same(const Placement& one, const Placement& other) {
  return one.part == other.part && one.offset == other.offset;
}

class SharedStoragesTest : public ::testing::Test {
 protected:
  std::vector<Placement> place(const std::string& key, const Loaded& loaded) {
    auto placements = shared_.place(key, loaded.pieces(), kLong);
    EXPECT_TRUE(placements.has_value());
    return placements.value_or(std::vector<Placement>(loaded.storages.size()));
  }

  Loaded random(std::initializer_list<size_t> sizes) {
    Loaded loaded;
    for (const size_t bytes : sizes) {
      loaded.storages.push_back(chance_.bytes(bytes));
    }
    return loaded;
  }

  SharedStorages shared_;
  Chance chance_{random_seed()};
};

TEST_F(SharedStoragesTest, AreAddedToByAnInterpreterThatHasMore) {
  const Loaded common = random({5000, 6000});
  const auto first = place("model", common);
  Loaded more = common;
  more.storages.push_back(chance_.bytes(7000));
  const auto second = place("model", more);
  EXPECT_TRUE(same(second[0], first[0]));
  EXPECT_TRUE(same(second[1], first[1]));
  EXPECT_NE(second[2].part, first[0].part);
  const auto third = place("model", more);
  EXPECT_TRUE(same(third[2], second[2]));
}

TEST_F(SharedStoragesTest, CannotBeWrittenTo) {
  const auto placed = place("model", random({5000}));
  const int fd = placed[0].part->fd;
  EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  EXPECT_EQ(::ftruncate(fd, 1 << 20), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  void* copy = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  ASSERT_NE(copy, MAP_FAILED);
  const std::string before = bytes_at(placed[0], 100);
  std::memset(copy, 1, 100);
  EXPECT_EQ(bytes_at(placed[0], 100), before);
  ::munmap(copy, 4096);
}

TEST_F(SharedStoragesTest, ArePlacedOnceByManyThreads) {
  for (int round = 0; round < 10; ++round) {
    const Loaded loaded = random({50'000, 2'500'000, 5000});
    std::vector<std::vector<Placement>> placed(8);
    together(8, [&](int me) {
      const Loaded own = loaded;  // each has loaded it for itself
      while (placed[me].empty()) {
        if (auto placements = shared_.place("model", own.pieces(), milliseconds(1))) {
          placed[me] = std::move(*placements);
        }
      }
    });
    for (const auto& placements : placed) {
      for (size_t i = 0; i < placements.size(); ++i) {
        EXPECT_TRUE(same(placements[i], placed[0][i]));
        EXPECT_TRUE(bytes_at(placements[i], loaded.storages[i].size()) == loaded.storages[i]);
      }
    }
  }
}

TEST_F(SharedStoragesTest, WaitOnlyForThoseOfTheirOwnKeyAndNotForLong) {
  // One that takes its time, until another has found it busy.
  const auto bytes = static_cast<size_t>(64) << 20;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, bytes);
  std::atomic<bool> done{false};
  std::atomic<int> busy{0};
  const Loaded loaded = random({5000});
  std::thread slow([&] {
    while (busy == 0) {
      EXPECT_TRUE(shared_.place("slow", {{memory, {bytes, 1}}}, kLong).has_value());
    }
    done = true;
  });
  while (!done) {
    EXPECT_TRUE(shared_.place("other", loaded.pieces(), milliseconds(0)).has_value());
    if (!shared_.place("slow", loaded.pieces(), milliseconds(0)).has_value()) {
      ++busy;
    }
  }
  slow.join();
  EXPECT_GT(busy, 0);
  ::munmap(memory, bytes);
}

TEST_F(SharedStoragesTest, SayWhyThereIsNoRoomAndLetTheNextOneTry) {
  const Loaded loaded = random({500'000});
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{100, limit.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  try {
    place("model", loaded);
  } catch (const std::system_error& error) {
    said = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
  EXPECT_TRUE(bytes_at(place("model", loaded)[0], 500'000) == loaded.storages[0]);
}

}  // namespace
}  // namespace interpool::testing
