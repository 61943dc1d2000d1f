// Work done in interpreters on their main threads, beside their leases.
#pragma once

#include <functional>
#include <vector>

#include "../seam/interpreter.h"

namespace interpool {

// Calls `work(interpreter)` with each of them entered, and waits at most `patience`
// seconds for all to be done. One whose GIL cannot be taken is visited later, or
// never: `work` owns what it touches. Any thread that holds no GIL. What `work` throws
// goes to stderr, and an interpreter that cannot be visited is left out. ArgumentError for
// a patience of NaN.
void visit_each(const std::vector<Interpreter*>& interpreters, std::function<void(Interpreter&)> work,
                double patience);

}  // namespace interpool
