"""The overlay's ``ts/model_service_worker.py``: runs the shim from its compiled bytecode.

Python compiles a script at each start, which takes longer than everything the shim does; a
module is compiled once. Beside this script's parent directory lies a link to the module.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from interpool_shim import main  # type: ignore[import-not-found]

sys.exit(main())
