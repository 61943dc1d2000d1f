// The host's own extensions, loaded after private copies of them.
#pragma once

namespace interpool {

// Stock extensions call libtorch_cpu's torch::Library, which is not interposed; what that
// calls in turn is rebound here. Once, before the first interpreter starts.
void rebind_host_registration(void* libtorch_cpu);

}  // namespace interpool
