// The process that hosts interpreters: how slots are loaded and started. A small library stands in
// for a slot's; copies are made by name only.
#include "core/process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "threads.h"

namespace interpool::testing {
namespace {

namespace fs = std::filesystem;

// Where private copies come from: for how many asked, per path and slot.
struct Copies {
  std::mutex mutex;
  std::map<std::pair<std::string, int>, int> asked;
  std::map<std::string, std::vector<std::string>> files;  // other than the path itself

  std::vector<std::string> make(const std::string& path, int slot) {
    const std::lock_guard lock(mutex);
    ++asked[{path, slot}];
    const auto other = files.find(path);
    return other == files.end() ? std::vector<std::string>{path} : other->second;
  }
};

Copies& copies() {
  static auto* const all = new Copies;
  return *all;
}

Process& process() {
  static const bool prepared = [] {
    std::string name = (fs::temp_directory_path() / "interpool-process-XXXXXX").string();
    static const fs::path torch = ::mkdtemp(name.data());
    for (const char* library : {"libc10.so", "libtorch_cpu.so", "libtorch.so"}) {
      fs::create_symlink(FAKE_SLOT, torch / library);
    }
    Installation installation;
    installation.torch_lib = torch;
    installation.interposer = FAKE_SLOT;
    installation.slot_library = FAKE_SLOT;
    Process::get().prepare(installation,
                           {[](const std::string& path, int slot) { return copies().make(path, slot); },
                            [](int) { return std::string(FAKE_SLOT); }});
    fs::remove_all(torch);
    return true;
  }();
  EXPECT_TRUE(prepared);
  return Process::get();
}

std::vector<int> ids(const std::vector<Interpreter*>& interpreters) {
  std::vector<int> all;
  for (const Interpreter* interpreter : interpreters) all.push_back(interpreter->id());
  return all;
}

TEST(Process, StartsInterpretersAtTheSameTime) {
  process().start(4, {});
  void* slot = ::dlopen(FAKE_SLOT, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(slot, nullptr);
  const auto most = reinterpret_cast<int (*)()>(::dlsym(slot, "fake_slot_most_at_once"));
  EXPECT_GT(most(), 1);
  ::dlclose(slot);
}

TEST(Process, KeepsTheOthersOfAStartThatFailedForTheNext) {
  const int next = ids(process().start(1, {})).front() + 1;
  const std::vector<std::string> path{"broken " + std::to_string(next + 1)};
  EXPECT_THROW(process().start(3, path), InterpreterStartError);
  EXPECT_EQ(ids(process().start(1, {})), (std::vector<int>{next + 3}));  // of another origin
  EXPECT_EQ(ids(process().start(1, path)), (std::vector<int>{next}));
  EXPECT_EQ(ids(process().start(2, path)), (std::vector<int>{next + 2, next + 4}));
}

TEST(Process, NamesWhatAnInterpreterCannotImport) {
  try {
    process().start(1, {}, {"missing"});
    FAIL() << "it started";
  } catch (const InterpreterStartError& error) {
    EXPECT_NE(std::string(error.what()).find(" cannot import missing: "), std::string::npos) << error.what();
  }
}

TEST(Process, AsksForEachCopyOnce) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(process().private_copy("/some/extension.so", 1),
              std::vector<std::string>{"/some/extension.so"});
  }
  process().private_copy("/some/extension.so", 2);
  EXPECT_EQ((copies().asked[{"/some/extension.so", 1}]), 1);
  EXPECT_EQ((copies().asked[{"/some/extension.so", 2}]), 1);
}

TEST(Process, SaysWhenALibraryIsNotInterpools) {
  process();
  copies().files[FAKE_SLOT] = {"libm.so.6"};
  try {
    process().start(1, {});
    FAIL() << "it started";
  } catch (const InterpreterStartError& error) {
    EXPECT_NE(std::string(error.what()).find("lacks interpool_open_interpreter"), std::string::npos)
        << error.what();
  }
  copies().files.clear();
}

TEST(Process, OpensAnArchiveOnceForAllThatNameIt) {
  const fs::path path = fs::temp_directory_path() / ("interpool-archive-" + std::to_string(::getpid()));
  std::ofstream(path) << "bytes";
  const auto taken = process().take_archive(path);
  EXPECT_EQ(process().open_archive(path, taken->number), taken);
  EXPECT_EQ(process().open_archive(path, 0), taken);
  EXPECT_THROW(process().open_archive(path, taken->number + 1000), ArchiveError);
  fs::remove(path);
}

}  // namespace
}  // namespace interpool::testing
