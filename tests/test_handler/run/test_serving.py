"""The pool of a process that serves without TorchServe; what it answers is tested in tests/system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os
from pathlib import Path
from interpool.handler.config import HostSettings
from interpool.handler.frontend import shim
from interpool.handler.run.serving import HostThread
from interpool.native import _native

place = Path(shim.runtime_base(), shim.instance_key(os.getpid(), shim.DEFAULT_POOL))
shim.make_private(str(place))
(place / "control").mkdir()  # where the socket is to be
try:
    HostThread(HostSettings.of_environment(), lambda: {"address": "", "models": []}).start()
except OSError as error:
    print(error.strerror, [pool.is_closed for pool in _native.pools()], flush=True)
os._exit(0)
"""


def test_a_host_that_cannot_listen_leaves_no_pool_open(tmp_path: Path) -> None:
    environment = {**os.environ, "INTERPOOL_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Is a directory [True]\n"
