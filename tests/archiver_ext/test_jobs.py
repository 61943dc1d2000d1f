"""The child processes of pack."""

from __future__ import annotations

import subprocess
import sys

SOURCE = """
import threading
from interpool.archiver_ext.pack.jobs import leave
threading.Thread(target=threading.Event().wait).start()
leave()
"""


def test_a_thread_that_never_ends_does_not_keep_a_child() -> None:
    assert subprocess.run([sys.executable, "-c", SOURCE], timeout=30, check=False).returncode == 0
