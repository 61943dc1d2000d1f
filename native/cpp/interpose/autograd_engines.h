// Autograd engines: each interpreter's is a whole one.
#pragma once

namespace interpool {

// `libtorch_cpu`: a dlopen handle.
void patch_engine_start(void* libtorch_cpu);

}  // namespace interpool
