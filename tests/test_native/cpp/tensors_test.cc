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

}  // namespace
}  // namespace interpool::testing
