// Points a loaded library's references at other definitions.
#pragma once

#include <functional>
#include <map>
#include <string_view>

#include "interpreters.h"

namespace interpool {

// For each function of `definitions` (mangled name, address), where `library` (a dlopen
// handle) calls or refers to it through its global offset table: uses that definition from
// now on.
INTERPOOL_API void patch_got(void* library, const std::map<std::string_view, void*>& definitions);

// For every function that `library` (a dlopen handle) calls or refers to through
// its global offset table and that this interposer defines: uses the interposer's
// from now on. What the library's static initialisers did before stands.
// `which`: those functions alone whose mangled names it says yes to. libtorch itself
// must go on to use its own of those that the interposer passes on to it.
void patch_got_to_interposer(void* library, const std::function<bool(std::string_view)>& which = {});

}  // namespace interpool
