from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # TorchServe leaves its version file open when it is imported.
    warnings.simplefilter("ignore", ResourceWarning)
    import ts  # noqa: F401
