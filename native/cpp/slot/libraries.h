// What loading libraries and importing modules in here asks of the process.
#pragma once

namespace interpool {

// Whether Python has said that it left for later what registers kernels with torch. Any thread.
bool registers_late();

}  // namespace interpool
