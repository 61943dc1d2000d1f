// Storages whose memory is exchanged for equal memory: which can be, what they hold, and who keeps it.
#include "slot/storages.h"

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/shared_storages.h"
#include "slot/tensors.h"
#include "threads.h"

namespace interpool::testing {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};

c10::Storage storage_of(const std::string& bytes) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(bytes.size()),
                       c10::GetCPUAllocator(), /*resizable=*/true);
  std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
  return storage;
}

std::string bytes_of(const c10::Storage& storage) {
  return {static_cast<const char*>(storage.data()), storage.nbytes()};
}

c10::StorageImpl& impl(const c10::Storage& storage) {
  return *storage.unsafeGetStorageImpl();
}

class StoragesTest : public ::testing::Test {
 protected:
  StoragesTest() : bytes_(chance_.bytes(20'000)) {}

  Placement place(const c10::Storage& storage) {
    return shared_.place("model", {{storage.data(), *content_of(storage.data(), storage.nbytes())}}, kLong)
        .value()
        .at(0);
  }

  Chance chance_{random_seed()};
  std::string bytes_;
  SharedStorages shared_;
  std::vector<c10::DataPtr> old_;
};

TEST_F(StoragesTest, HaveMemoryOfTheirOwnFromTorchsAllocator) {
  EXPECT_TRUE(has_own_memory(impl(storage_of(bytes_))));
  const c10::Storage foreign(c10::Storage::use_byte_size_t(), 10, c10::DataPtr(bytes_.data(), c10::kCPU));
  EXPECT_FALSE(has_own_memory(impl(foreign)));
  const c10::Storage owned(c10::Storage::use_byte_size_t(), 10,
                           owned_pointer(bytes_.data(), std::make_shared<int>(), c10::kCPU));
  EXPECT_FALSE(has_own_memory(impl(owned)));
  const c10::Storage none(c10::Storage::use_byte_size_t(), 0, c10::DataPtr());
  EXPECT_FALSE(has_own_memory(impl(none)));
  const at::Tensor lazy = at::_lazy_clone(at::ones({1000}));
  EXPECT_FALSE(has_own_memory(impl(lazy.storage())));
  const at::Tensor meta = at::empty({1000}, at::kMeta);
  EXPECT_FALSE(has_own_memory(impl(meta.storage())));
}

TEST_F(StoragesTest, AreTheSameIfAllTheirBytesAre) {
  for (const size_t bytes : {1, 31, 32, 33, 4095, 4096, 4097, 12'345}) {
    std::string text = bytes_.substr(0, bytes);
    text[0] |= 2;  // a single byte of chance may be zero, and would be scratch space
    const auto content = content_of(text.data(), bytes);
    ASSERT_TRUE(content.has_value());
    EXPECT_EQ(content->bytes, bytes);
    EXPECT_EQ(content_of(std::string(text).data(), bytes), content);
    std::string shifted = "x" + text;
    EXPECT_EQ(content_of(shifted.data() + 1, bytes), content);  // wherever they lie
    for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) {
      std::string other = text;
      other[at] ^= 1;
      const auto changed = content_of(other.data(), bytes);
      EXPECT_TRUE(!changed.has_value() || changed->hash != content->hash) << bytes << " at " << at;
    }
  }
}

TEST_F(StoragesTest, AreMovedToEqualMemoryAndKeepIt) {
  const c10::Storage storage = storage_of(bytes_);
  const void* before = storage.data();
  int fd = -1;
  {
    const Placement placement = place(storage);
    fd = placement.part->fd;
    const auto mapping = std::make_shared<PartMapping>(placement.part);
    ASSERT_TRUE(repoint(impl(storage), mapping, placement.offset, old_));
    EXPECT_EQ(storage.data(), mapping->at(placement.offset));
  }
  ASSERT_EQ(old_.size(), 1U);
  EXPECT_EQ(old_[0].get(), before);
  old_.clear();
  EXPECT_TRUE(bytes_of(storage) == bytes_);
  EXPECT_FALSE(has_own_memory(impl(storage)));  // and so is not moved again
  EXPECT_NE(::fcntl(fd, F_GETFD), -1);
  impl(storage).release_resources();
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST_F(StoragesTest, StayWhereTheyAreIfTheMemoryIsNotEqual) {
  const c10::Storage storage = storage_of(bytes_);
  const Placement placement = place(storage);
  const auto mapping = std::make_shared<PartMapping>(placement.part);
  static_cast<char*>(storage.mutable_data())[19'999] ^= 1;
  const void* before = storage.data();
  EXPECT_FALSE(repoint(impl(storage), mapping, placement.offset, old_));
  EXPECT_EQ(storage.data(), before);
  EXPECT_TRUE(old_.empty());
  EXPECT_EQ(mapping.use_count(), 1);
}

TEST_F(StoragesTest, KeepTheirMemoryForTensorsThatCross) {
  std::optional<at::Tensor> there;
  int fd = -1;
  {
    const at::Tensor here = at::arange(10'000, at::kDouble);
    const Placement placement = place(here.storage());
    fd = placement.part->fd;
    ASSERT_TRUE(
        repoint(impl(here.storage()), std::make_shared<PartMapping>(placement.part), placement.offset, old_));
    StorageMemo out;
    StorageMemo in;
    there = import_tensor(export_tensor(here, out), in);
    EXPECT_EQ(there->const_data_ptr(), here.const_data_ptr());
  }
  EXPECT_EQ(there->sum().item<double>(), 10'000.0 * 9'999 / 2);
  EXPECT_NE(::fcntl(fd, F_GETFD), -1);
  there.reset();
  EXPECT_TRUE(eventually([&] { return ::fcntl(fd, F_GETFD) == -1; }));
}

}  // namespace
}  // namespace interpool::testing
