// Opaque types that interpreters have registered; see registries.cc.
#pragma once

#include <string>
#include <vector>

#include "interpreters.h"

namespace interpool {

std::vector<std::string> opaque_types_of(InterpreterId id);

}  // namespace interpool
