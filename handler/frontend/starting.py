"""Waits until the TorchServe that was started in the background answers, or has ended.

TorchServe's launcher ends at once. The frontend that it has started first loads the models of the store, and
then listens at its addresses. Another process may have a port already, or a registration may take long.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from interpool.handler.errors import ServerEnded
from interpool.handler.torchserve import running_addresses, running_frontend

_PAUSE_S = 0.05
_PROGRESS_S = 5.0
_ADDRESSES = 3  # TorchServe has these at least: inference, management, metrics
_STABLE_S = 3.0
_END_S = 10.0
_SERVER_LOG = "ts_log.log"
_SHOWN_LINES, _SHOWN_BYTES = 5, 8192


def await_server(say: Callable[[str], None]) -> str:
    """Wait until the server that was started just now listens at its addresses.

    Args:
        say: is called with the progress every few seconds, as text for people.

    Returns:
        Text on its process and its addresses, for people.

    Raises:
        ServerEnded: it does not run; the message has the end of its log.
        KeyboardInterrupt: the start is cancelled; the server has been ended.
    """
    began = time.monotonic()
    log = _log_directory() / _SERVER_LOG
    size = log.stat().st_size if log.exists() else 0
    frontend = running_frontend()
    process = psutil.Process(frontend) if frontend is not None else None
    served = ""
    if process is not None:
        try:
            served = _await(process, began, log, say)
        except KeyboardInterrupt:
            _end(process)
            raise
    if not served:
        raise ServerEnded(f"TorchServe ended before it served. {_end_of(log, size)}")
    return served


def _end(process: psutil.Process) -> None:
    give_up = time.monotonic() + _END_S
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
    while _runs(process) and time.monotonic() < give_up:
        time.sleep(_PAUSE_S)


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _await(process: psutil.Process, began: float, log: Path, say: Callable[[str], None]) -> str:
    """Wait until this frontend listens; text on it, or "" if it has ended."""
    next_said = began + _PROGRESS_S
    others_since = 0.0
    while _runs(process):
        inference, management = running_addresses()
        places = _listens_at(process)
        who = f"TorchServe (process {process.pid}) serves"
        if {_place(inference), _place(management)} <= places:
            return f"{who}: inference {inference}, management {management}"
        # running_addresses may not find its configuration.
        others_since = (others_since or time.monotonic()) if len(places) >= _ADDRESSES else 0.0
        if others_since and time.monotonic() - others_since >= _STABLE_S:
            return f"{who} at {', '.join(sorted(map(str, places)))}"
        if time.monotonic() >= next_said:
            next_said += _PROGRESS_S
            say(
                f"TorchServe (process {process.pid}) has been starting for {time.monotonic() - began:.0f} s; "
                f"it listens once it has loaded the models that it starts with. Its log: {log}"
            )
        time.sleep(_PAUSE_S)
    return ""


def _log_directory() -> Path:
    return Path(os.environ.get("LOG_LOCATION") or "logs").absolute()


def _listens_at(process: psutil.Process) -> set[str | int | None]:
    """The ports, and paths of unix sockets, at which this process listens; not those of its children."""
    with contextlib.suppress(psutil.Error):
        return {
            connection.laddr if isinstance(connection.laddr, str) else connection.laddr.port
            for connection in process.net_connections("all")
            if connection.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and connection.laddr
        }
    return set()


def _place(address: str) -> str | int | None:
    scheme, _, path = address.partition(":")
    return path.removeprefix("//") if scheme == "unix" else urlsplit(address).port


def _end_of(log: Path, size: int) -> str:
    """Text with the last lines that the log got since it had ``size`` bytes; only errors, if it has any."""
    try:
        with log.open("rb") as file:
            file.seek(max(size, log.stat().st_size - _SHOWN_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"Its log {log} cannot be read: {error.strerror}"
    wrong = [line for line in lines if "ERROR" in line or "Exception" in line] or lines
    return "\n  ".join([f"The end of its log {log}:", *wrong[-_SHOWN_LINES:]])
