// Preparing the process: what fails leaves nothing behind, and of many at once one counts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "core/prepared.h"
#include "core/process.h"
#include "core/start_pool.h"
#include "threads.h"

namespace interpool::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 8;

size_t cores() {
  return std::max(1U, std::thread::hardware_concurrency());
}

// For two interpreters, and for a pool of the default size with one more.
Provisioner provisioner() {
  return {[](const std::string& path, int) { return std::vector<std::string>{path}; },
          [](int) { return std::string(FAKE_SLOT); }, 2 + cores() + 1};
}

// One that can be loaded, except `broken` ones; `name` tells which it was.
Installation installation(const std::string& name, const fs::path& torch, bool broken) {
  Installation made;
  made.executable = name;
  made.torch_lib = torch;
  made.interposer = broken ? "/nowhere/libinterposer.so" : FAKE_SLOT;
  made.slot_library = FAKE_SLOT;
  return made;
}

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    std::string name = (fs::temp_directory_path() / "interpool-prepare-XXXXXX").string();
    torch_ = ::mkdtemp(name.data());
    for (const char* library : {"libc10.so", "libtorch_cpu.so", "libtorch.so"}) {
      fs::create_symlink(FAKE_SLOT, torch_ / library);
    }
  }
  ~PrepareTest() override { fs::remove_all(torch_); }

  static void expect_unprepared() {
    EXPECT_THROW(Process::get().installation(), InterpreterStartError);
    EXPECT_THROW(Process::get().start(1, {}), InterpreterStartError);
    EXPECT_THROW(Process::get().host(), InterpreterStartError);
  }

  fs::path torch_;
};

// In one test, as there is one process: it is prepared once.
TEST_F(PrepareTest, FailsWithoutATraceAndThenSucceedsOnce) {
  Process& process = Process::get();
  expect_unprepared();

  for (const auto& broken :
       {installation("no torch", "/nowhere/torch/lib", false), installation("no interposer", torch_, true)}) {
    try {
      process.prepare(broken, provisioner());
      FAIL() << "it is prepared";
    } catch (const InterpreterStartError& error) {
      EXPECT_NE(std::string(error.what()).find("/nowhere/"), std::string::npos) << error.what();
    }
    expect_unprepared();
  }

  // Half of them can be loaded, and somebody looks all the time.
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) {
      try {
        EXPECT_EQ(process.installation().slot_library, FAKE_SLOT);
        EXPECT_EQ(process.installation().torch_lib, torch_);
      } catch (const InterpreterStartError&) {
        std::this_thread::yield();
      }
    }
  });
  std::mutex mutex;
  std::set<std::string> prepared;
  std::set<std::string> seen;
  together(kThreads, [&](int i) {
    const std::string name = "thread " + std::to_string(i);
    try {
      const bool mine = process.prepare(installation(name, torch_, i % 2 == 1), provisioner());
      const std::lock_guard lock(mutex);
      if (mine) prepared.insert(name);
      seen.insert(process.installation().executable);
    } catch (const InterpreterStartError&) {
      EXPECT_EQ(i % 2, 1);
    }
  });
  over = true;
  reader.join();
  ASSERT_EQ(prepared.size(), 1U);
  EXPECT_EQ(seen, prepared);

  // From then on nothing is loaded, and nothing changes.
  EXPECT_FALSE(process.prepare(installation("late", "/nowhere", true), provisioner()));
  process.prepare_from("/nowhere/prepared.txt");
  EXPECT_EQ(process.installation().executable, *prepared.begin());
  const auto started = process.start(2, {});
  EXPECT_EQ(started.size(), 2U);
  EXPECT_EQ(started.front()->id(), 1);  // what failed used no number up

  // A pool of the default size grows no further than copies can be made.
  EXPECT_EQ(process.startable(), cores() + 1);
  const auto pool = start_pool({}, {});
  EXPECT_EQ(pool->min_size(), cores());
  EXPECT_EQ(pool->max_size(), cores() + 1);
  EXPECT_EQ(process.startable(), 1U);
  EXPECT_EQ(start_pool({1, 5}, {})->max_size(), 5U);  // somebody named it
  EXPECT_EQ(process.startable(), 0U);
  process.start(1, {});  // the provisioner itself says that it has no more
  EXPECT_EQ(process.startable(), 0U);
}

// What such a file begins with; `paths` come before each path.
std::string prepared_text(const std::string& paths) {
  return "interpool-prepared 2\ninterpool\t" INTERPOOL_VERSION "\nexecutable\t" + paths +
         "python\nsymbol_prefix\tp_\ntorch_lib\t" + paths + "t\ninterposer\t" + paths + "i\nslot_library\t" +
         paths + "s\nloader\t" + paths + "l\nlibpython\t1\t" + paths + "p1\n";
}

TEST_F(PrepareTest, AFileSaysHowManyInterpretersItPrepares) {
  const fs::path file = torch_ / "prepared.txt";
  std::ofstream(file) << prepared_text("/") + "libpython\t2\t/p2\nlibpython\t3\t/p3\n";
  EXPECT_EQ(read_prepared(file).second.slots, 3U);
}

TEST_F(PrepareTest, WhatIsRelativeInAFileIsInItsFolderWherePathsLeadToThat) {
  const fs::path folder = torch_ / "bundle";
  fs::create_directories(folder / "a");
  std::ofstream(folder / "prepared.txt") << prepared_text("a/") +
                                                "home\tpython\nnotes\timports\nsearch\ta/zip\nsearch\t/b\n"
                                                "copy\t1\ta/x.so\tc/1/x.so\ncopy\t1\tz.so\tz.so\n";
  fs::create_directory_symlink(folder, torch_ / "link");
  const fs::path root = fs::canonical(folder);
  for (const fs::path& named : {folder, folder / "prepared.txt", torch_ / "link"}) {
    const auto [installation, provisioner] = read_prepared(named);
    EXPECT_EQ(installation.executable, root / "a/python");
    EXPECT_EQ(installation.symbol_prefix, "p_");
    EXPECT_EQ(installation.home, root / "python");
    EXPECT_EQ(installation.notes, root / "imports");
    EXPECT_EQ(installation.search_path, (std::vector<std::string>{root / "a/zip", "/b"}));
    EXPECT_EQ(provisioner.libpython_copy(1), root / "a/p1");
    const std::vector<std::string> copies{root / "c/1/x.so"};
    for (const fs::path& wanted : {root / "a/x.so", root / "a/../a/x.so", torch_ / "link/a/x.so"}) {
      EXPECT_EQ(provisioner.private_copy(wanted, 1), copies) << wanted;
    }
    EXPECT_EQ(provisioner.private_copy("z.so", 1), std::vector<std::string>{"z.so"});
    EXPECT_THROW(provisioner.private_copy(root / "a/y.so", 1), ProvisioningError);
    EXPECT_THROW(provisioner.private_copy(root / "a/x.so", 2), ProvisioningError);
  }
}

TEST_F(PrepareTest, AFileOfAnotherInterpoolIsRefused) {
  const fs::path file = torch_ / "prepared.txt";
  std::ofstream(file) << prepared_text("/") + "interpool\t0.0.7\n";
  try {
    read_prepared(file);
    FAIL() << "it is taken";
  } catch (const ProvisioningError& error) {
    EXPECT_NE(std::string(error.what()).find("was made by interpool 0.0.7, and"), std::string::npos);
  }
}

}  // namespace
}  // namespace interpool::testing
