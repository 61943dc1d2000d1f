// What loading libraries and importing modules in here asks of the process.
#pragma once

namespace interpool {

// Whether Python has deferred imports that register kernels with torch. Any thread.
bool registers_deferred();

}  // namespace interpool
