// Points a loaded library's references at other definitions.
#pragma once

namespace interpool {

// For every function that `library` (a dlopen handle) calls or refers to through
// its global offset table and that this interposer defines: uses the interposer's
// from now on. What the library's static initialisers did before stands.
void rebind_to_interposer(void* library);

}  // namespace interpool
