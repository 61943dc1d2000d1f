// What libtorch_cpu registers with its dispatcher on its own: for the host's extensions, loaded
// after private copies of them, and for torch::RegisterOperators in any copy.
#pragma once

namespace interpool {

// Stock extensions call libtorch_cpu's torch::Library, which is not interposed, and every copy
// its RegisterOperators; what these call in turn is rebound here. Once, before the first
// interpreter starts.
void rebind_host_registration(void* libtorch_cpu);

}  // namespace interpool
