// Which of its CPU kernels an operator calls: chosen once, as torch means it.
//
// torch has a place for the choice in every stub. Up to 2.14 it writes null there, at each call
// (pytorch#195328). So all threads of a process choose again each time, and write to memory that the others
// read. Two interpreters were slower than two processes by that.
#include "../upstream/torch_symbols.h"
#include "interpreters.h"

namespace interpool {
namespace {

// Any thread, with or without a GIL. Throws c10::Error if the stub has no kernel for the device.
void* kernel_of_stub(at::native::DispatchStubImpl* stub, c10::DeviceType device, void* plain, void* avx512,
                     void* avx2) {
  if (device != c10::DeviceType::CPU) {
    return torch_symbols.kernel_of_stub(stub, device, plain, avx512, avx2);
  }
  // Code, which was there before: no order is needed. All threads choose the same.
  void* kernel = stub->cpu_dispatch_ptr.load(std::memory_order_relaxed);
  if (kernel == nullptr) {
    kernel = torch_symbols.kernel_of_stub(stub, device, plain, avx512, avx2);
    stub->cpu_dispatch_ptr.store(kernel, std::memory_order_relaxed);
  }
  return kernel;
}

}  // namespace
}  // namespace interpool

extern "C" INTERPOOL_API void* interpool_kernel_of_stub(at::native::DispatchStubImpl* stub,
                                                        c10::DeviceType device, void* plain, void* avx512,
                                                        void* avx2) asm(INTERPOOL_KERNEL_OF_STUB);

void* interpool_kernel_of_stub(at::native::DispatchStubImpl* stub, c10::DeviceType device, void* plain,
                               void* avx512, void* avx2) {
  return interpool::kernel_of_stub(stub, device, plain, avx512, avx2);
}
