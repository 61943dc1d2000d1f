"""Starts TorchServe in the foreground, as its own command does, and has an exit status for how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace

from ts import model_server

# As the JVM ends after a signal that asks it to, and as it ends before it handles signals.
_AS_ASKED = frozenset(
    status for number in (signal.SIGTERM, signal.SIGINT) for status in (128 + number, -number)
)
_NOT_SERVED = 5  # as in ``commands.common``, which imports more


def start() -> int:
    """Start TorchServe, and wait for its end.

    Returns:
        The exit status. It is 0 if the server ended because it was asked to.
    """
    begun: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str]) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(command))
        return begun[0]

    model_server.subprocess = SimpleNamespace(Popen=begin)  # its own command forgets how the frontend ended
    model_server.start()
    status = begun[0].returncode if begun else 0
    if not status or status in _AS_ASKED:
        return 0
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    print(f"interpool: TorchServe's Java process {how}. Its log may say why.", file=sys.stderr)
    return _NOT_SERVED
