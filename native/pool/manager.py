"""The pool of private interpreters.

Terms are those of *Using Python for Model Inference in Deep Learning* (DeVito et al., 2021), section 4.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.native.errors import InterpreterStartError, SessionError
from interpool.native.inside import interpreter_id
from interpool.native.upstream.cpython_private import in_subinterpreter

if interpreter_id() is not None:
    # A second pool would replace the first one's routes to torch's Python objects.
    raise SessionError(
        "an InterpreterManager cannot be made inside a pool's interpreter; the pool is outside, and "
        "code in here is already served by it"
    )
if in_subinterpreter():
    # The import of compiled modules made with pybind11, torch's and ours, would wait for ever.
    raise SessionError(
        "interpool works in a program's main interpreter only, and this is a subinterpreter of it, as "
        "concurrent.interpreters makes them, or mod_wsgi without WSGIApplicationGroup %{GLOBAL}. Open the "
        "pool in the main interpreter, on any thread, or in a process of its own"
    )

from interpool.native import _native, provision
from interpool.native._native import Channel, Connection, InterpreterSession, MovableObject, PyObj
from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE
from interpool.native.archive.reader import read_manifest, read_records
from interpool.native.pool.forks import is_forked, note_process, refuse_in_fork
from interpool.native.pool.host_torch import watch_host_torch, without_torch_imports
from interpool.native.pool.leaks import warn_of_open_leases, watch_process_end
from interpool.native.pool.stacks import describe_stacks
from interpool.native.pool.untested import refuse_untested
from interpool.native.upstream.requirements import pip_install

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from interpool.native.pool.states import PoolState

__all__ = [
    "Connection",
    "Instance",
    "InterpreterManager",
    "InterpreterSession",
    "MovableObject",
    "Package",
    "PyObj",
]

_DEFAULTS = _native.PoolSettings()


class InterpreterManager:
    """A pool of private CPython interpreters in this process.

    Each has its own GIL and its own ``import torch``; all share one libtorch. Any thread may use the manager.
    It stays usable if a model raises any exception.

    Waiting callers are served fairly by affinity: the affinity that has used the least interpreter time is
    next. Within an affinity, the first caller is next.

    If ``max_size`` is more than ``n``, the pool grows in the background, one interpreter at a time. It grows
    while callers wait and this process leaves cores unused. If all cores are in use, it grows only if another
    affinity waits that has had less than its fair share.

    Args:
        n: the minimum number of interpreters; default: the number of cores.
        max_size: the maximum number. Default: ``n``, which is then the exact number; without ``n``, four
            times the number of cores.
        park_after: seconds without need after which an interpreter above ``n`` is parked: it is not leased
            and keeps no models, but can be reused quickly.
        grace: seconds in which a call past its session's limit may return after an interruption. Then its
            interpreter is retired and a new one started.
        preload: modules that every interpreter imports before its first lease.

    Raises:
        ProvisioningError: private copies could not be made (see ``interpool doctor``).
        InterpreterStartError: an interpreter did not start, or could not import a preloaded module.
        SessionError: the process was forked from one that had opened a pool.
        ValueError: ``n`` is not positive, ``max_size`` is below it, or a time is not a positive number.
    """

    def __init__(
        self,
        n: int | None = None,
        *,
        max_size: int | None = None,
        park_after: float = _DEFAULTS.park_after,
        grace: float = _DEFAULTS.grace,
        preload: Sequence[str] = (),
    ) -> None:
        settings = _native.PoolSettings(n, max_size, park_after=park_after, grace=grace, preload=preload)
        _prepare()
        self._pool = _native.Pool(settings, _search_path())

    def acquire_session(
        self, timeout: float | None = None, affinity: str = "", call_limit: float | None = None
    ) -> InterpreterSession:
        """Lease an interpreter; use the session as a context manager.

        Args:
            timeout: seconds to wait for a free interpreter; None for no limit.
            affinity: any name; an interpreter that has served it before is preferred.
            call_limit: seconds that each use of the session or its objects may take. After that, an exception
                interrupts the Python code at any point, like KeyboardInterrupt, and CallTimeoutError is
                raised here; the session stays usable. Native code cannot be interrupted. If it does not
                return within the manager's ``grace``, the interpreter is retired, and all uses of the session
                raise InterpreterRetiredError. Such sessions call in their own thread, which costs about ten
                microseconds a call.

        Raises:
            LeaseTimeoutError: no interpreter became free in time.
            InterpreterStartError: every interpreter was retired, and no new one starts.
            PoolClosedError: the manager was closed.
            ValueError: ``timeout`` is negative or not a number, or ``call_limit`` is not positive.
        """
        return self._pool.acquire(affinity, timeout, call_limit)

    def all_instances(self) -> list[Instance]:
        """Return the pool's interpreters; each can be leased individually."""
        return [Instance(self._pool, number) for number in self._pool.instances()]

    def resize(self, min_size: int, max_size: int | None = None) -> None:
        """Change the minimum and maximum number of interpreters.

        Missing interpreters start in the background while the present ones serve callers. A failed start is
        reported on stderr, counted in ``stats``, and repeated later. Interpreters above the maximum are
        parked.

        Args:
            min_size: the minimum.
            max_size: the maximum; default: ``min_size``, which is then the exact number.

        Raises:
            ValueError: ``min_size`` is not positive, or ``max_size`` is below it.
        """
        self._pool.resize(min_size, min_size if max_size is None else max_size)

    def limit(self, count: int) -> None:
        """Lease only the first ``count`` interpreters from now on; ``len(manager)`` removes the limit.

        Raises:
            ValueError: ``count`` is not between 1 and the size of the pool.
        """
        self._pool.limit(count)

    def isolate(self, affinity: str) -> None:
        """Lease dedicated interpreters for ``affinity``, until it is forgotten.

        They start if its callers wait, up to the minimum size, and share its weights. They do not count as
        part of the pool's sizes, and are retired when ``affinity`` is forgotten.

        Raises:
            ValueError: ``affinity`` is empty.
        """
        self._pool.isolate(affinity)

    def register_module_source(self, name: str, source: str) -> None:
        """Make ``import name`` use this source in every interpreter that has not imported it yet.

        Args:
            name: of the module; submodules have a registered parent: ``pkg``, then ``pkg.mod``.
            source: Python text, which is compiled when it is imported.

        Raises:
            TypeError: an argument is not text, or has a lone surrogate.
            SessionError: the process was forked from one that had opened the pool.
        """
        self._pool.register_module_source(name, source)

    def load_package(self, path: str | os.PathLike[str]) -> Package:
        """Open a hermetic archive without running any of it.

        Its structure and its manifest are checked. Its digests and signature are not:
        ``interpool.archiver_ext.verify_archive`` checks these.

        Raises:
            ArchiveError: missing, damaged, not a torch.package archive, or with a wrong manifest.
        """
        return Package(self._pool, path)

    def create_movable(self, obj: Any) -> MovableObject:
        """Return a snapshot of the object for use in any interpreter.

        Its tensors, parameters and buffers share memory with the original and with all interpreters: a write
        is visible to all.

        Args:
            obj: a PyObj of one of this pool's sessions, or an object of the host program.

        Raises:
            ConversionError: it cannot be pickled, contains a tensor that cannot cross, or is of a class that
                the host program itself (``__main__``) defines.
        """
        if isinstance(obj, PyObj):
            return obj.session.create_movable(obj)
        from interpool.native import movable

        return self._pool.create_movable(movable.dump(obj))

    def serve(
        self,
        asked_by: int | Channel,
        *,
        module: str,
        function: str,
        worker: str,
        affinity: str,
        done_fd: int,
        pinned: bool = False,
        share: int | None = None,
    ) -> Connection:
        """Answer a connected stream socket, or a channel, that uses TorchServe's worker protocol.

        A native thread reads whole messages without any GIL, and leases an interpreter for each. In each
        interpreter it calls ``module.function(worker, load_command)`` once, and then the returned service
        for each message. ``service(message)`` returns ``(reply, keep_open)``, the reply as bytes or a
        bytearray. ``load_command`` is the connection's first message, TorchServe's load command. A message is
        a memoryview that is valid only during its call.

        Args:
            asked_by: the socket's descriptor, or a channel; the connection owns it from now on, and closes
                it if this raises.
            module: importable in the interpreters.
            function: its function, as above.
            worker: passed through.
            affinity: see ``acquire_session``.
            done_fd: after the end, a uint64 1 is written to it (as to an eventfd).
            pinned: answer all messages in one interpreter, the one with the fewest such connections; in
                another one if that is retired.
            share: the most interpreters that all leases with this affinity may have at once, until it is
                forgotten; None changes nothing.

        Raises:
            ValueError: ``share`` is less than one.
        """
        return self._pool.serve(
            asked_by,
            module=module,
            function=function,
            worker=worker,
            affinity=affinity,
            done_fd=done_fd,
            pinned=pinned,
            share=share,
        )

    def tell_all(self, module: str, function: str, argument: str) -> None:
        """Call ``module.function(argument)`` in every interpreter, including leased ones.

        It runs on the interpreter's main thread as soon as that has the GIL; this method does not wait for
        it. What the call raises goes to stderr.

        Args:
            module: importable in the interpreters.
            function: its function.
            argument: passed through.

        Raises:
            ConversionError: the argument cannot cross into an interpreter.
            SessionError: the process was forked from one that had opened the pool.
        """
        self._pool.tell_all(module, function, argument)

    def forget(self, affinity: str, interpreter: int | None = None) -> None:
        """Stop to prefer interpreters for ``affinity``, because its model was unloaded there.

        Args:
            affinity: the name.
            interpreter: the number of the only interpreter that forgets it; None for all.

        Raises:
            SessionError: the process was forked from one that had opened the pool.
        """
        self._pool.forget(affinity, interpreter)

    def stats(self) -> PoolState:
        """Return the pool's state, which can be converted to JSON; see ``PoolState``."""
        return self._pool.status()

    def dump_stacks(self, patience: float = 1.0) -> str:
        """Return the Python stacks of every thread of every interpreter, including busy ones.

        Args:
            patience: seconds to wait for all together. An interpreter whose GIL cannot be acquired in that
                time is reported as such.

        Raises:
            ValueError: ``patience`` is not a number.
        """
        return describe_stacks(self._pool.stacks(patience), patience)

    def close(self) -> None:
        """Stop leasing: waiting callers get PoolClosedError, open sessions stay valid.

        Issues a ResourceWarning, which Python shows with ``-X dev`` or ``-W default``, that names open leases
        and their objects. A manager that is never closed issues it when the process ends.

        The interpreters live until then. A later manager reuses those that were not leased; the others are
        not reused, because their state is unknown. A forked process leaves its parent's pools alone.
        """
        if not is_forked() and not self._pool.is_closed:
            self._pool.close()
            warn_of_open_leases(self._pool, "an InterpreterManager was closed")

    @property
    def min_size(self) -> int:
        """The minimum number of interpreters."""
        return self._pool.min_size

    @property
    def max_size(self) -> int:
        """The maximum number of interpreters."""
        return self._pool.max_size

    def __len__(self) -> int:
        """Return the number of interpreters that are free or leased; neither parked nor retired."""
        return len(self._pool)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Instance:
    """One interpreter of a pool.

    Attributes:
        interpreter_id: its number in this process, from 1.
    """

    def __init__(self, pool: _native.Pool, interpreter_id: int) -> None:
        self._pool = pool
        self.interpreter_id = interpreter_id

    def acquire_session(
        self, timeout: float | None = None, affinity: str = "", call_limit: float | None = None
    ) -> InterpreterSession:
        """Lease exactly this interpreter.

        Args:
            timeout: as in ``InterpreterManager.acquire_session``.
            affinity: as there.
            call_limit: as there.

        Raises:
            LeaseTimeoutError: the interpreter did not become free in time.
            InterpreterRetiredError: it was retired; or ``affinity`` is not empty, and the interpreter is
                dedicated to another one (``InterpreterManager.isolate``).
            InterpreterStartError: every interpreter was retired, and no new one starts.
            PoolClosedError: the manager was closed.
            ValueError: as in ``InterpreterManager.acquire_session``.
        """
        return self._pool.acquire(affinity, timeout, call_limit, self.interpreter_id)


class Package:
    """A snapshot of a hermetic archive at the time of opening.

    When the package and all its objects are deleted, the interpreters unload the archive.

    Attributes:
        path: absolute path of the archive file.
    """

    def __init__(self, pool: _native.Pool, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._package = pool.open_package(str(self.path))
        with open(f"/proc/self/fd/{self._package.fd}", "rb") as file:
            read_manifest(str(self.path), file, read_records(str(self.path), file))

    def load_entry(self) -> MovableObject:
        """Load the model of an archive that ``interpool pack`` made, for use in any interpreter.

        Raises:
            ArchiveError: there is none: other packers use other names, see ``load_pickle``.
            RemoteError: unpickling it raised.
        """
        return self.load_pickle(ENTRY_PACKAGE, ENTRY_RESOURCE)

    def load_pickle(self, package: str, resource: str) -> MovableObject:
        """Load a pickled object for use in any interpreter.

        One interpreter loads it now, so that errors are raised here; others load it when they first need it.

        Args:
            package: name of the Python package that contains the pickle.
            resource: name of the pickle in it.

        Raises:
            ArchiveError: there is no such resource.
            RemoteError: unpickling it raised.
        """
        return self._package.load_pickle(package, resource)

    def load_binary(self, package: str, resource: str) -> bytes:
        """Return a resource's bytes.

        Args:
            package: name of the Python package that contains the resource.
            resource: name of the resource in it.

        Raises:
            ArchiveError: there is no such resource.
        """
        return self._package.load_binary(package, resource)

    def load_text(self, package: str, resource: str) -> str:
        """Return a resource's text.

        Args:
            package: name of the Python package that contains the resource.
            resource: name of the resource in it.

        Raises:
            ArchiveError: there is no such resource.
            UnicodeDecodeError: it is not UTF-8.
        """
        return self.load_binary(package, resource).decode("utf-8")

    def acquire_session(self, timeout: float | None = None) -> InterpreterSession:
        """Lease an interpreter; the session's ``self`` is the archive's PackageImporter there.

        Args:
            timeout: seconds to wait for a free interpreter; None for no limit.

        Raises:
            LeaseTimeoutError: no interpreter became free in time.
            InterpreterStartError: every interpreter was retired, and no new one starts.
            PoolClosedError: the manager was closed.
            ValueError: ``timeout`` is negative or not a number.
        """
        return self._package.acquire_session(timeout)


_preparing = threading.Lock()
_prepared = False


def installation() -> dict[str, Any]:
    """Return the locations of this installation's parts.

    Raises:
        InterpreterStartError: torch is not installed, or interpool was not tested with this torch or Python.
        ProvisioningError: interpool was not built for this torch.
    """
    torch_lib = provision.torch_libraries()
    if torch_lib is None:
        raise InterpreterStartError(f"torch is not installed: {pip_install('torch')}")
    interposer = provision.interposer_path()
    refuse_untested(interposer)
    return {
        "executable": sys.executable,
        "symbol_prefix": provision.SYMBOL_PREFIX,
        "torch_lib": str(torch_lib),
        "interposer": str(interposer),
        "slot_library": str(interposer.with_name("libinterpool_slot.so")),
        "loader": str(Path(__file__).parents[1] / "inside" / "loader.py"),
        "search_path": _search_path(),
        "notes": provision.notes_folder(),
    }


def _prepare() -> None:
    """Load once what all interpreters of this process share."""
    if not _prepared:
        # Acquire torch's lock first: an import of torch that creates a manager has it already.
        with without_torch_imports(), _preparing:
            _prepare_alone()
    refuse_in_fork()


def _prepare_alone() -> None:
    global _prepared
    if _prepared:
        return
    found = installation()
    # Environment variables or the working directory may change later, and with them the cache's location.
    copies = provision.present_copies()
    _native.prepare(**found, private_copy=copies.private_copy, libpython_copy=copies.libpython_copy)
    watch_host_torch(Path(found["torch_lib"]))
    watch_process_end()
    provision.sweep_later()
    note_process()
    _prepared = True


def _search_path() -> list[str]:
    return [os.path.abspath(entry or os.curdir) for entry in sys.path]
