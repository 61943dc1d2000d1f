#include "allocator.h"

#include <cstdlib>

namespace interpool {

void keep_freed_memory() {
  constexpr size_t kMost = size_t{32} << 20;  // DEFAULT_MMAP_THRESHOLD_MAX of 64-bit systems
  constexpr size_t kAround = 8192;            // the block's header, and what fills its last page
  // It is mapped, and not touched: no memory is taken. Volatile, as compilers leave out such pairs.
  void* volatile largest = std::malloc(kMost - kAround);
  std::free(largest);
}

}  // namespace interpool
