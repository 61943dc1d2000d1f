"""Making the patched template of one private object."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from interpool.native.errors import ProvisioningError
from interpool.native.provision.analysis import Facts
from interpool.native.provision.elf import (
    STB_GNU_UNIQUE,
    STB_WEAK,
    SharedObject,
)
from interpool.native.provision.environment import (
    INTERPOSER_SONAME,
    SYMBOL_PREFIX,
    Environment,
    patchelf_path,
)
from interpool.native.provision.store import new_file

# Stands in a template where a slot copy has its number; equal length, so that
# a slot copy differs in these bytes only.
MARKER = b"ipslot0000"


@dataclass(frozen=True)
class Change:
    """What to make of one object: its new SONAME and the needed names to exchange."""

    soname: str
    libpython: str | None
    replace: dict[str, str]
    interposer: bool


def make_template(source: str, target: Path, facts: Facts, change: Change, env: Environment) -> list[int]:
    """Write the patched template of ``source`` to ``target``.

    Returns:
        File offsets, in bytes, of every slot marker in the template.

    Raises:
        ProvisioningError: patchelf failed; names the file and repeats its output.
    """
    command = [patchelf_path(), "--output", str(target), "--set-soname", change.soname]
    for old, new in change.replace.items():
        command += ["--replace-needed", old, new]
    first = [INTERPOSER_SONAME] if change.interposer else []
    if change.libpython:
        for old in facts.libpython:
            command += ["--replace-needed", old, change.libpython]
        if not facts.libpython:
            command += ["--add-needed", change.libpython]
        first.append(change.libpython)
    if change.interposer:
        command += ["--add-needed", INTERPOSER_SONAME]
    if facts.search:
        command += ["--force-rpath", "--set-rpath", ":".join(facts.search)]
    command += ["--rename-dynamic-symbols", str(_name_map(env)), source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProvisioningError(
            f"patchelf could not make a private copy of {source} "
            f"(status {done.returncode}): {done.stderr.strip() or done.stdout.strip()}"
        )
    os.chmod(target, 0o600)
    with SharedObject(target, writable=True) as library:
        library.order_needed(first)
        for symbol in library.symbols():
            if change.interposer and symbol.defined and symbol.name in env.interposed:
                # Its own definition would win over the interposer's otherwise.
                library.undefine(symbol)
            elif symbol.binding == STB_GNU_UNIQUE:
                # Unique symbols are merged process-wide, whatever the scope.
                library.set_binding(symbol, STB_WEAK)
        return library.string_offsets(MARKER)


def _name_map(env: Environment) -> Path:
    """patchelf's file of old and new names, made once per environment."""
    path = env.directory / "names.map"
    if not path.exists():
        names = sorted(name.decode() for name in env.python_names)
        with new_file(path) as draft:
            draft.write_text("".join(f"{name} {SYMBOL_PREFIX}{name}\n" for name in names))
    return path
