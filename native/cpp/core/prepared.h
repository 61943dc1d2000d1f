// The file that `interpool prepare` writes, for processes without a Python.
#pragma once

#include <string>
#include <utility>

#include "process.h"

namespace interpool {

// Lines of fields parted by tabs: "interpool-prepared 1", then `name value` for each of
// Installation's (its `notes` may be missing), `search entry`, `libpython slot file`, `copy slot path
// file...`. An empty name: $INTERPOOL_PREPARED, else prepared.txt in the cache directory. Throws
// ProvisioningError, which says how to make one.
std::pair<Installation, Provisioner> read_prepared(const std::string& file);

}  // namespace interpool
