// What libtorch_cpu registers with its dispatcher on its own. It is for the host's extensions, loaded after
// private copies of them, and for torch::RegisterOperators in any copy.
#pragma once

namespace interpool {

// Stock extensions call libtorch_cpu's torch::Library, which is not interposed, and every copy
// its RegisterOperators; the calls that these make in turn are patched here. Once, before the first
// interpreter starts.
void patch_host_registration(void* libtorch_cpu);

}  // namespace interpool
