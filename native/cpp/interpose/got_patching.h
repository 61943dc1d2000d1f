// Points a loaded library's references at other definitions.
#pragma once

#include <functional>
#include <map>
#include <string_view>

#include "interpreters.h"

namespace interpool {

// Has `library` (a dlopen handle) use these `definitions` (mangled name, address) from now on, if it calls or
// refers to them through its global offset table.
INTERPOOL_API void patch_got(void* library, const std::map<std::string_view, void*>& definitions);

// Has `library` (a dlopen handle) use this interposer's functions from now on, if it calls or refers to them
// through its global offset table. What the library's static initialisers did before stands. `which`: those
// functions alone whose mangled names it says yes to. Of those that the interposer passes on to libtorch,
// libtorch itself must go on to use its own.
void patch_got_to_interposer(void* library, const std::function<bool(std::string_view)>& which = {});

}  // namespace interpool
