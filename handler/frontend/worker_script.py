"""The overlay's ``ts/model_service_worker.py``: runs the shim from its compiled bytecode.

Python compiles a script at each start, which takes longer than all that the shim does. It compiles a module
once. A link to the shim's module lies beside this script's parent directory. If a program imports this file,
as a test may, it gets TorchServe's own module.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from interpool_shim import main  # type: ignore[import-not-found]

    sys.exit(main())

from importlib.util import module_from_spec, spec_from_file_location

# The overlay's other files are links to TorchServe's.
_stock = os.path.dirname(os.path.realpath(os.path.join(os.path.dirname(__file__), "__init__.py")))
_spec = spec_from_file_location(__name__, os.path.join(_stock, os.path.basename(__file__)))
assert _spec is not None
assert _spec.loader is not None
_module = module_from_spec(_spec)
sys.modules[__name__] = _module
_spec.loader.exec_module(_module)
