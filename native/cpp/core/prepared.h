// What `interpool prepare` writes, for processes without a Python.
#pragma once

#include <string>
#include <utility>

#include "process.h"

namespace interpool {

// Lines of fields that are separated by tabs. The first line is "interpool-prepared 2". The others:
//
// - `name value` for `interpool` (the version that wrote it) and each of Installation's (its `notes` and
//   `home` may be missing);
// - `search entry`, `libpython slot file`, `copy slot path file...`.
//
// Paths may be relative to the file's folder: such a folder is a bundle, which can be moved. A `path` or
// `file` of `copy` without a slash is a name that the dynamic linker finds.
//
// `named`: the file, or a bundle's folder. If empty: $INTERPOOL_PREPARED, else the bundle that
// libinterpool.so was loaded from, else prepared.txt in the cache directory. Throws ProvisioningError, which
// says what to do.
std::pair<Installation, Provisioner> read_prepared(const std::string& named);

// Throws ProvisioningError if the process has loaded a libtorch from another folder: it can have one only.
void require_no_other_torch(const std::string& torch_lib);

}  // namespace interpool
