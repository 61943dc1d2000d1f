"""Makes private copies ahead of time, for C++ programs without a Python."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from interpool.native.errors import ProvisioningError
from interpool.native.pool.prepared_file import FILE_NAME, write_prepared
from interpool.native.provision.store import cache_root, parents_of, private_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec


def default_file() -> Path:
    """Return the default file of C++ programs: ``$INTERPOOL_PREPARED``, or else one in the cache."""
    named = os.environ.get("INTERPOOL_PREPARED")
    return Path(named) if named else cache_root() / FILE_NAME


def prepare(file: Path, slots: int, imports: Sequence[str] = ()) -> int:
    """Start a pool, import modules in each interpreter, and record every private copy that this needs.

    All extension modules of the standard library and of the named packages are copied, even if no import
    loads them.

    Args:
        file: the file to write.
        slots: the maximum number of interpreters of a program.
        imports: modules that programs will import, besides torch.

    Returns:
        The number of copies.

    Raises:
        ProvisioningError: a module is not installed, a path contains a tab or a newline, or the file or the
            cache cannot be written.
        RemoteError: importing a module raised.
    """
    file = Path(os.path.abspath(file))
    with _folder_of(file):
        return _prepare(file, slots, imports)


def _prepare(file: Path, slots: int, imports: Sequence[str]) -> int:
    from interpool.native import _native, provision
    from interpool.native.pool.manager import InterpreterManager, installation

    extensions = list(_extensions(Path(sysconfig.get_config_var("DESTSHARED"))))
    for name in imports:
        extensions += _extensions_of(name)
    with InterpreterManager(slots) as manager:
        for instance in manager.all_instances():
            with instance.acquire_session() as session:
                for name in imports:
                    session.global_("importlib", "import_module")(name)
            for extension in extensions:
                _native.private_copy(extension, instance.interpreter_id)
        numbers = [instance.interpreter_id for instance in manager.all_instances()]
    provision.require_files()
    found = installation()
    search = found.pop("search_path")
    libpythons = {number: provision.libpython_copy(number) for number in numbers}
    copies = _native.copies()
    write_prepared(file, found, search, libpythons, copies)
    provision.keep_for(file)
    return len(copies)


@contextlib.contextmanager
def _folder_of(file: Path) -> Iterator[None]:
    """Create the file's folder for the block; if it fails, remove it if it is empty.

    Raises:
        ProvisioningError: the file cannot be written there.
    """
    if file.is_dir():
        raise ProvisioningError(f"cannot write {file}: it is a directory", "Name a file with --output")
    with contextlib.ExitStack() as stack:
        if file.parent == cache_root():
            private_directory(file.parent)
        else:
            try:
                stack.enter_context(parents_of(file))
                is_writable = os.access(file.parent, os.W_OK)
            except OSError:
                is_writable = False
            if not is_writable:
                raise ProvisioningError(f"cannot write {file}", "Name another place for it with --output")
        yield


def _extensions(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.so")):
        if path.name.endswith(tuple(EXTENSION_SUFFIXES)):
            yield str(path)


def installed(name: str) -> ModuleSpec:
    """Return the spec of a module's package.

    Raises:
        ProvisioningError: it is not installed, or no module can have that name.
    """
    top = name.partition(".")[0]
    if not top:
        raise ProvisioningError(f"{name!r} is not the name of a module", "Name one that can be imported")
    try:
        spec = find_spec(top)
    except ValueError:  # torch may be partially imported
        spec = None
    if spec is None:
        raise ProvisioningError(f"{name} is not installed for {sys.executable}: pip install it first")
    return spec


def _extensions_of(name: str) -> list[str]:
    spec = installed(name)
    return [path for folder in spec.submodule_search_locations or [] for path in _extensions(Path(folder))]
