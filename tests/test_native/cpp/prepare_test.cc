// What a prepared file says: how many interpreters, and where their copies are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/prepared.h"

namespace interpool::testing {
namespace {

namespace fs = std::filesystem;

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    std::string name = (fs::temp_directory_path() / "interpool-prepare-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~PrepareTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

// What such a file begins with; `paths` come before each path.
std::string prepared_text(const std::string& paths) {
  return "interpool-prepared 2\ninterpool\t" INTERPOOL_VERSION "\nexecutable\t" + paths +
         "python\nsymbol_prefix\tp_\ntorch_lib\t" + paths + "t\ninterposer\t" + paths + "i\nslot_library\t" +
         paths + "s\nloader\t" + paths + "l\nlibpython\t1\t" + paths + "p1\n";
}

TEST_F(PrepareTest, AFileSaysHowManyInterpretersItPrepares) {
  const fs::path file = folder_ / "prepared.txt";
  std::ofstream(file) << prepared_text("/") + "libpython\t2\t/p2\nlibpython\t3\t/p3\n";
  EXPECT_EQ(read_prepared(file).second.slots, 3U);
}

TEST_F(PrepareTest, ARelativePathInAFileIsBelowItsFolder) {
  const fs::path folder = folder_ / "bundle";
  fs::create_directories(folder / "a");
  std::ofstream(folder / "prepared.txt") << prepared_text("a/") +
                                                "home\tpython\nnotes\timports\nsearch\ta/zip\nsearch\t/b\n"
                                                "copy\t1\ta/x.so\tc/1/x.so\ncopy\t1\tz.so\tz.so\n";
  fs::create_directory_symlink(folder, folder_ / "link");
  const fs::path root = fs::canonical(folder);
  for (const fs::path& named : {folder, folder / "prepared.txt", folder_ / "link"}) {
    const auto [installation, provisioner] = read_prepared(named);
    EXPECT_EQ(installation.executable, root / "a/python");
    EXPECT_EQ(installation.symbol_prefix, "p_");
    EXPECT_EQ(installation.home, root / "python");
    EXPECT_EQ(installation.notes, root / "imports");
    EXPECT_EQ(installation.search_path, (std::vector<std::string>{root / "a/zip", "/b"}));
    EXPECT_EQ(provisioner.libpython_copy(1), root / "a/p1");
    const std::vector<std::string> copies{root / "c/1/x.so"};
    for (const fs::path& wanted : {root / "a/x.so", root / "a/../a/x.so", folder_ / "link/a/x.so"}) {
      EXPECT_EQ(provisioner.private_copy(wanted, 1), copies) << wanted;
    }
    EXPECT_EQ(provisioner.private_copy("z.so", 1), std::vector<std::string>{"z.so"});
    EXPECT_THROW(provisioner.private_copy(root / "a/y.so", 1), ProvisioningError);
    EXPECT_THROW(provisioner.private_copy(root / "a/x.so", 2), ProvisioningError);
  }
}

}  // namespace
}  // namespace interpool::testing
