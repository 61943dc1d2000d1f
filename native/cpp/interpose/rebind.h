// Points a loaded library's references at other definitions.
#pragma once

#include <string_view>

#include "interpreters.h"

namespace interpool {

// For the function `name`, where `library` (a dlopen handle) calls or refers to it through
// its global offset table: uses `definition` from now on.
INTERPOOL_API void rebind(void* library, const char* name, void* definition);

// For every function that `library` (a dlopen handle) calls or refers to through
// its global offset table and that this interposer defines: uses the interposer's
// from now on. What the library's static initialisers did before stands.
// `only`: no others than functions whose mangled names contain it.
void rebind_to_interposer(void* library, std::string_view only = "");

}  // namespace interpool
