// What a model changes of the thread that it is called on, put back when the call is over.
#pragma once

namespace interpool {

// The calling thread enters an interpreter, and leaves it. CPU affinity and signal mask become what they
// were, if the private copies' code changed them meanwhile.
void enter_attributes() noexcept;
void leave_attributes() noexcept;

}  // namespace interpool
