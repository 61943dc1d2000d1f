// Points a loaded library's references at other definitions.
#pragma once

#include <initializer_list>
#include <string_view>

namespace interpool {

// For every function that `library` (a dlopen handle) calls or refers to through
// its global offset table and that this interposer defines: uses the interposer's
// from now on. What the library's static initialisers did before stands.
void rebind_to_interposer(void* library);

// The same for these functions alone: libtorch itself must go on to use its own of
// those that the interposer passes on to it.
void rebind_to_interposer(void* library, std::initializer_list<std::string_view> functions);

}  // namespace interpool
