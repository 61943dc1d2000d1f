"""A free-threaded CPython that is on the machine, and that benchmarks measure beside interpreters."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

# Run by the peer: imports nothing of this project.
_ASK = """
import json, platform, sysconfig
found = {"version": platform.python_version(), "free": bool(sysconfig.get_config_var("Py_GIL_DISABLED"))}
try:
    import torch
    found["torch"] = torch.__version__
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


class PeerError(ValueError):
    """What was named cannot be measured; the message says why, and what to do."""


@dataclass(frozen=True)
class Peer:
    """A free-threaded CPython with torch.

    Attributes:
        python: its program.
        version: CPython's, as ``3.14.0``.
        torch: its torch's.
    """

    python: Path
    version: str
    torch: str

    @property
    def name(self) -> str:
        """It, with its versions."""
        return named(self.version, self.torch)

    def label(self, imported: set[str], ended: set[str]) -> str:
        """What rows say of it.

        Args:
            imported: what ``gil`` said in its processes after imports.
            ended: what it said at their ends.
        """
        states = ["on" if "on" in each else "off" for each in (imported, ended)]
        return f"{self.name}, GIL {states[0]} after imports, {states[1]} at the end"

    def kept(self) -> dict[str, str]:
        """What a result keeps of it: its versions, not where it lies."""
        return {name: value for name, value in asdict(self).items() if name != "python"}


def named(version: str, torch: str) -> str:
    """A free-threaded CPython of that version, with such a torch."""
    return f"free-threaded CPython {version}, torch {torch}"


def gil() -> str:
    """Whether this process's GIL is ``on`` or ``off`` now: an extension module may switch it on."""
    return "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--peer`` and ``--other-torch``."""
    parser.add_argument(
        "--peer",
        type=Path,
        metavar="PATH",
        help="measure a free-threaded CPython beside interpreters, and nothing else: its program, or a "
        "virtual environment of it, with torch of the same release",
    )
    parser.add_argument(
        "--other-torch",
        action="store_true",
        help="accept a peer with another release of torch: the rows name it",
    )


def chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Peer | None:
    """The peer that the options name; ends the program with a message if it cannot be measured."""
    if options.peer is None:
        return None
    try:
        return find(options.peer, options.other_torch)
    except PeerError as error:
        parser.error(f"--peer {options.peer}: {error}")


def find(path: Path, other_torch: bool = False) -> Peer:
    """The peer at a path.

    Args:
        path: its program, or the folder of a virtual environment.
        other_torch: whether its torch may be of another release than this Python's.

    Raises:
        PeerError: it is no Python, not free-threaded, or has no torch, or another one.
    """
    # Absolute, but not resolved: a virtual environment's program is a link.
    python = (path / "bin" / "python" if path.is_dir() else path).absolute()
    command = [python, "-W", "ignore", "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        raise PeerError(f"{python} does not run as a Python ({error}); name a Python's program") from None
    if not found["free"]:
        raise PeerError(
            f"CPython {found['version']} is built with a GIL; name a free-threaded build, as python3.14t is"
        )
    ours = metadata.version("torch")
    wanted = release(ours)
    install = f"run {python} -m pip install torch=={wanted}"
    if "error" in found:
        raise PeerError(f"its torch cannot be imported ({found['error']}); {install}")
    if release(found["torch"]) != wanted and not other_torch:
        raise PeerError(
            f"it has torch {found['torch']}, and this Python has {ours}; {install}, or give --other-torch to "
            "compare the two as they are"
        )
    return Peer(python, found["version"], found["torch"])


def release(version: str) -> str:
    """A version without its build: ``2.13.0`` of ``2.13.0+cpu``."""
    return version.partition("+")[0]
