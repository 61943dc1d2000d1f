// Operators' CPU kernels, chosen once for the process.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "interpose/interpreters.h"
#include "threads.h"
#include "upstream/torch_symbols.h"

namespace interpool::testing {
namespace {

using at::native::DispatchStubImpl;

// A stub of libtorch's own.
const DispatchStubImpl& stub(const char* mangled) {
  void* libtorch = dlopen(kTorchCpu, RTLD_NOW | RTLD_NOLOAD);
  const auto* found = libtorch == nullptr ? nullptr : dlsym(libtorch, mangled);
  EXPECT_NE(found, nullptr) << mangled;
  return *static_cast<const DispatchStubImpl*>(found);
}

TEST(DispatchStubs, KeepTheKernelThatWasChosen) {
  install_router();
  const DispatchStubImpl& copy = stub("_ZN2at6native9copy_stubE");
  const at::Tensor from = at::arange(6).reshape({2, 3}).t();
  EXPECT_TRUE(from.contiguous().equal(from));
  void* const kernel = copy.cpu_dispatch_ptr.load();
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(from.contiguous().equal(from));
  EXPECT_EQ(copy.cpu_dispatch_ptr.load(), kernel);
}

TEST(DispatchStubs, AreAskedByManyThreadsAtOnce) {
  install_router();
  const at::Tensor x = at::linspace(-2, 2, 1000);
  const at::Tensor like = at::where(x > 0, x, at::zeros_like(x));
  std::atomic<int> right{0};
  together(8, [&](int) {
    for (int i = 0; i < 200; ++i) right += at::clamp_min(x, 0).equal(like) ? 1 : 0;
  });
  EXPECT_EQ(right, 8 * 200);
}

TEST(DispatchStubs, OfNothingHaveTorchsOwnError) {
  install_router();
  const auto kernel_of = reinterpret_cast<KernelOfStub>(dlsym(RTLD_DEFAULT, "ip_" INTERPOOL_KERNEL_OF_STUB));
  ASSERT_NE(kernel_of, nullptr);
  DispatchStubImpl nothing;
  for (const auto device : {at::kCPU, at::kCUDA, at::kMeta}) {
    EXPECT_THROW(kernel_of(&nothing, device, nullptr, nullptr, nullptr), c10::Error) << device;
  }
  EXPECT_EQ(nothing.cpu_dispatch_ptr.load(), nullptr);
  int kernel = 0;
  EXPECT_EQ(kernel_of(&nothing, at::kCPU, &kernel, &kernel, &kernel), &kernel);
  EXPECT_EQ(nothing.cpu_dispatch_ptr.load(), &kernel);
  EXPECT_THROW(kernel_of(&nothing, at::kCUDA, &kernel, &kernel, &kernel), c10::Error);
}

}  // namespace
}  // namespace interpool::testing
