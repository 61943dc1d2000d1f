// Tensors that share memory across interpreters: who keeps it, and who lets it go, and where.
#include "slot/tensors.h"

#include <gtest/gtest.h>
#include <interpool/errors.h>
#include <interpool/torch.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "slot/main_thread.h"
#include "threads.h"

namespace interpool::testing {
namespace {

std::thread::id main_thread;

// Memory that counts how often it is freed, and remembers where.
struct Memory {
  std::vector<float> floats = std::vector<float>(24);
  std::atomic<int> freed{0};
  std::atomic<bool> on_main_thread{false};

  c10::DataPtr pointer() {
    return {floats.data(), this,
            [](void* context) {
              auto* memory = static_cast<Memory*>(context);
              memory->on_main_thread = std::this_thread::get_id() == main_thread;
              ++memory->freed;
            },
            c10::Device(c10::kCPU)};
  }
};

at::Tensor tensor_of(const c10::Storage& storage, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                     int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(c10::kFloat));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

c10::Storage storage_of(Memory& memory) {
  return {c10::Storage::use_byte_size_t(), memory.floats.size() * sizeof(float), memory.pointer(), nullptr,
          false};
}

at::Tensor tensor_of(Memory& memory) {
  return tensor_of(storage_of(memory), {4, 6}, {6, 1}, 0);
}

TensorView exported(const at::Tensor& tensor) {
  StorageMemo memo;
  return export_tensor(tensor, memo);
}

at::Tensor imported(const TensorView& view) {
  StorageMemo memo;
  return import_tensor(view, memo);
}

// Nothing else is freed from now on: what was handed to the main thread has been done.
void wait_for_main_thread() {
  std::atomic<bool> done{false};
  MainThread::get().run_later([&] { done = true; });
  ASSERT_TRUE(eventually([&] { return done.load(); }));
}

class TensorsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    MainThread::get().start([] { main_thread = std::this_thread::get_id(); });
  }

  static void expect_freed_once(const Memory& memory) {
    EXPECT_TRUE(eventually([&] { return memory.freed == 1; }));
    wait_for_main_thread();
    EXPECT_EQ(memory.freed, 1);
    EXPECT_TRUE(memory.on_main_thread);
  }
};

TEST_F(TensorsTest, AreFreedBehindOneWhoseEndWaits) {
  std::atomic<bool> open{false};
  std::atomic<bool> waiting{false};
  MainThread::get().run_later([&] {
    waiting = true;
    open.wait(false);
    waiting = false;
  });
  Memory memory;
  {
    const at::Tensor there = imported(exported(tensor_of(memory)));
  }
  EXPECT_TRUE(eventually([&] { return memory.freed == 1; }));
  EXPECT_TRUE(waiting);
  open = true;
  open.notify_all();
  EXPECT_TRUE(eventually([&] { return !waiting; }));
}

TEST_F(TensorsTest, CrossWithoutACopy) {
  Memory memory;
  {
    const at::Tensor here = tensor_of(memory);
    const at::Tensor there = imported(exported(here));
    EXPECT_NE(there.unsafeGetTensorImpl(), here.unsafeGetTensorImpl());
    EXPECT_NE(there.storage().unsafeGetStorageImpl(), here.storage().unsafeGetStorageImpl());
    EXPECT_EQ(there.const_data_ptr(), memory.floats.data());
    EXPECT_EQ(there.sizes(), here.sizes());
    EXPECT_EQ(there.scalar_type(), c10::kFloat);
  }
  expect_freed_once(memory);
}

TEST_F(TensorsTest, KeepOneOwnerHoweverOftenTheyCross) {
  Memory memory;
  {
    const at::Tensor here = tensor_of(memory);
    TensorView view = exported(here);
    const std::shared_ptr<void> owner = view.buffer->owner;
    for (int i = 0; i < 5; ++i) {
      view = exported(imported(view));
      EXPECT_EQ(view.buffer->owner, owner);
      view = from_tensor(to_tensor(view)).as<TensorView>();  // through a C++ program
      EXPECT_EQ(view.buffer->owner, owner);
    }
  }
  expect_freed_once(memory);
}

TEST_F(TensorsTest, KeepTheirViewsShape) {
  Memory memory;
  {
    const c10::Storage storage = storage_of(memory);
    const at::Tensor view = tensor_of(storage, {2, 3}, {1, 6}, 7);  // transposed, with an offset
    const at::Tensor there = imported(exported(view));
    EXPECT_EQ(there.sizes(), (c10::IntArrayRef{2, 3}));
    EXPECT_EQ(there.strides(), (c10::IntArrayRef{1, 6}));
    EXPECT_EQ(there.storage_offset(), 7);
    EXPECT_EQ(there.const_data_ptr(), memory.floats.data() + 7);
  }
  expect_freed_once(memory);
}

TEST_F(TensorsTest, ThatAliasBeforeAliasAfter) {
  Memory memory;
  {
    const c10::Storage storage = storage_of(memory);
    StorageMemo out;
    const TensorView whole = export_tensor(tensor_of(storage, {24}, {1}, 0), out);
    const TensorView part = export_tensor(tensor_of(storage, {4}, {1}, 20), out);
    EXPECT_EQ(whole.buffer, part.buffer);
    StorageMemo in;
    const at::Tensor first = import_tensor(whole, in);
    const at::Tensor second = import_tensor(part, in);
    EXPECT_EQ(first.storage().unsafeGetStorageImpl(), second.storage().unsafeGetStorageImpl());
  }
  expect_freed_once(memory);
}

TEST_F(TensorsTest, KeepTheirFlags) {
  Memory memory;
  {
    at::Tensor leaf = tensor_of(memory);
    leaf.set_requires_grad(true);
    leaf._set_neg(true);
    const at::Tensor there = imported(exported(leaf));
    EXPECT_TRUE(there.requires_grad());
    EXPECT_TRUE(there.is_neg());
    EXPECT_FALSE(there.is_conj());
  }
  expect_freed_once(memory);
}

TEST_F(TensorsTest, OutliveTheStorageTheyCameFrom) {
  Memory memory;
  TensorView view;
  {
    const at::Tensor here = tensor_of(memory);
    view = exported(here);
    here.storage().unsafeGetStorageImpl()->reset();  // what resizing or set_() does to it
    EXPECT_EQ(memory.freed, 0);
  }
  wait_for_main_thread();
  EXPECT_EQ(memory.freed, 0);
  EXPECT_EQ(imported(view).const_data_ptr(), memory.floats.data());
  view = {};
  expect_freed_once(memory);
}

TEST_F(TensorsTest, CrossAgainAndAgainWithOneOwner) {
  Memory memory;
  {
    at::Tensor tensor = tensor_of(memory);
    for (int hop = 0; hop < 20; ++hop) tensor = imported(exported(tensor));
    wait_for_main_thread();
    EXPECT_EQ(memory.freed, 0);
    EXPECT_EQ(tensor.const_data_ptr(), memory.floats.data());
  }
  expect_freed_once(memory);
}

TEST_F(TensorsTest, AreFreedOnceInEveryOrderOfDeath) {
  std::array<int, 5> order{};
  std::iota(order.begin(), order.end(), 0);
  int orders = 0;
  do {
    Memory memory;
    {
      std::vector<at::Tensor> tensors{tensor_of(memory)};
      TensorView view = exported(tensors[0]);
      for (int i = 0; i < 3; ++i) tensors.push_back(imported(view));
      tensors.push_back(imported(exported(tensors.back())));
      view = {};
      for (size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(memory.freed, 0) << "freed while " << order.size() - i << " users were left";
        tensors[static_cast<size_t>(order[i])].reset();
      }
    }
    expect_freed_once(memory);
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(orders, 120);
}

TEST_F(TensorsTest, AreFreedOnceByManyThreadsThatLetGoAtOnce) {
  constexpr int kThreads = 16;
  const uint64_t seed = random_seed();
  for (uint64_t round = 0; round < 60; ++round) {
    Memory memory;
    std::vector<at::Tensor> tensors(kThreads);
    tensors[0] = tensor_of(memory);
    const auto view = std::make_unique<TensorView>(exported(tensors[0]));
    for (size_t i = 1; i < kThreads; ++i) tensors[i] = imported(*view);
    view->buffer.reset();
    Chance chance(seed + round);
    chance.shuffle(tensors);
    together(kThreads, [&](int me) { tensors[static_cast<size_t>(me)].reset(); });
    expect_freed_once(memory);
  }
}

TEST_F(TensorsTest, AreSharedByManyThreadsAtOnce) {
  constexpr int kThreads = 16;
  for (int round = 0; round < 40; ++round) {
    Memory memory;
    {
      const at::Tensor here = tensor_of(memory);
      const TensorView view = exported(here);
      together(kThreads, [&](int me) {
        at::Tensor mine = imported(view);
        // Passed on to another interpreter, which may keep it longer.
        const TensorView onward = exported(mine);
        if (me % 2 == 0) mine.reset();
        const at::Tensor theirs = imported(onward);
        EXPECT_EQ(theirs.const_data_ptr(), memory.floats.data());
      });
      EXPECT_EQ(memory.freed, 0);
    }
    expect_freed_once(memory);
  }
}

TEST_F(TensorsTest, OverForeignMemoryKeepItsOwner) {
  std::weak_ptr<std::string> owner;
  at::Tensor tensor;
  {
    auto bytes = std::make_shared<std::string>("some bytes");
    owner = bytes;
    tensor = tensor_over(bytes->data(), bytes->size(), bytes);
  }
  EXPECT_EQ(tensor.sizes(), (c10::IntArrayRef{10}));
  EXPECT_EQ(std::string(static_cast<const char*>(tensor.const_data_ptr()), 10), "some bytes");
  TensorView view = exported(tensor);
  tensor.reset();
  EXPECT_FALSE(owner.expired());
  view = {};
  EXPECT_TRUE(owner.expired());
}

TEST_F(TensorsTest, ThatAreNotDenseAreRefusedByPrograms) {
  const at::Tensor dense = at::ones({2, 2});
  for (const at::Tensor& other : {dense.to_sparse(), at::_nested_tensor_from_tensor_list({dense}),
                                  at::quantize_per_tensor(dense, 0.5, 0, at::kQInt8)}) {
    EXPECT_THROW(from_tensor(other), ConversionError);
    const TensorView view = exported(other);  // as it comes out of an interpreter
    EXPECT_THROW(to_tensor(view), ConversionError);
  }
}

TEST_F(TensorsTest, ThatShareNoMemoryAreRefused) {
  const auto refusal = [](const at::Tensor& tensor) -> std::string {
    try {
      exported(tensor);
    } catch (const ConversionError& error) {
      return error.what();
    }
    return "it crossed";
  };
  EXPECT_NE(refusal(at::Tensor()).find("undefined"), std::string::npos);
  const auto bare = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::Meta), c10::scalarTypeToTypeMeta(c10::kFloat), c10::kMeta);
  EXPECT_NE(refusal(bare).find("a storageless tensor"), std::string::npos) << refusal(bare);
}

}  // namespace
}  // namespace interpool::testing
