// What a model's code says of its interpreter's next leases.
#pragma once

#include <optional>
#include <string>

namespace interpool {

// Has Python code in here asked for that (`_interpool.retire_interpreter`)? Any thread.
bool wants_to_retire();

// For whom Python code in here has claimed it (`_interpool.claim_interpreter`). Any thread.
std::optional<std::string> take_claim();

}  // namespace interpool
