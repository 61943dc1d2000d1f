"""The pool of private interpreters, from Python.

The nouns are those of *Using Python for Model Inference in Deep Learning*
(DeVito et al., 2021), section 4.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpool.native.errors import InterpreterStartError, SessionError
from interpool.native.inside import interpreter_id

if interpreter_id() is not None:
    # A second pool would take the first one's routes to torch's Python objects.
    raise SessionError(
        "an InterpreterManager cannot be made inside a pool's interpreter; the pool is outside, and "
        "code in here is already served by it"
    )

from interpool.native import _native, provision
from interpool.native._native import Connection, InterpreterSession, MovableObject, PyObj
from interpool.native.archive.format import ENTRY_PACKAGE, ENTRY_RESOURCE
from interpool.native.archive.reader import read_manifest, read_records
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

    Each has its own GIL and its own ``import torch``; all share one libtorch. Any
    thread may use the manager. It stays usable whatever a model raises.

    Callers who wait are served fairly over affinities: next is the one that has had the
    least of the interpreters' time, and within one affinity who came first.

    Given more than one, it grows on a thread in the background, one interpreter at a
    time, while callers wait and most leases wait for something other than the CPU: a
    timer, a file, another service. Leases that compute do not make it grow, unless
    they keep another affinity waiting that has had less than its fair part.

    Args:
        n: the minimum size: how many interpreters at least; by default the number of cores.
        max_size: how many at most. By default ``n``, which is then the exact number;
            without ``n``, four times the number of cores.
        park_after: seconds without need after which an interpreter above ``n`` is
            parked: no longer leased, without models, and warm for the next time.
        grace: seconds that a call past its session's limit has to come back once it was
            interrupted, before its interpreter is retired and another one started.
        preload: modules that every interpreter imports before it is leased.

    Raises:
        ProvisioningError: private copies could not be made (see ``interpool doctor``).
        InterpreterStartError: an interpreter did not start, or could not import what is preloaded.
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
        """Lease an interpreter; use it as a context manager.

        Args:
            timeout: seconds to wait for a free one; None waits for ever.
            affinity: any name; an interpreter that has served it before is preferred.
            call_limit: seconds that each use of the session or of one of its objects may
                take. What takes longer is interrupted by an exception in its Python code,
                which may arise anywhere there, as KeyboardInterrupt does, and raises
                CallTimeoutError here; the session goes on. Native code cannot be
                interrupted: if it does not return within the manager's ``grace``, the
                interpreter is retired, and everything of the session raises
                InterpreterRetiredError. Such sessions call on a thread of their own,
                which costs about ten microseconds a call.

        Raises:
            LeaseTimeoutError: none became free in time.
            PoolClosedError: the manager was closed.
            ValueError: ``timeout`` is negative or not a number, or ``call_limit`` is not
                positive.
        """
        return self._pool.acquire(affinity, timeout, call_limit)

    def all_instances(self) -> list[Instance]:
        """The pool's interpreters, each of which can be leased by itself."""
        return [Instance(self._pool, number) for number in self._pool.instances()]

    def resize(self, min_size: int, max_size: int | None = None) -> None:
        """Change how many interpreters there are at least and at most.

        What is missing of the minimum is started in the background, some at a time; callers are
        served meanwhile by those that there are. A start that fails is told on stderr, counted in
        ``stats``, and tried again after a while. What is above the maximum is parked.

        Args:
            min_size: at least.
            max_size: at most; by default ``min_size``, which is then the exact number.

        Raises:
            ValueError: ``min_size`` is not positive, or ``max_size`` is below it.
        """
        self._pool.resize(min_size, min_size if max_size is None else max_size)

    def limit(self, count: int) -> None:
        """Lease the first ``count`` interpreters only, from now on; ``len(manager)`` lifts it.

        Raises:
            ValueError: ``count`` is not between 1 and the size of the pool.
        """
        self._pool.limit(count)

    def isolate(self, affinity: str) -> None:
        """Lease for ``affinity`` only interpreters of its own, from now until it is forgotten.

        These are started when callers wait for them, up to the minimum size, count for none of the
        sizes, and are retired when ``affinity`` is forgotten. Its weights are shared with them.

        Raises:
            ValueError: ``affinity`` is empty.
        """
        self._pool.isolate(affinity)

    def register_module_source(self, name: str, source: str) -> None:
        """Make ``import name`` give this source in every interpreter that has not imported it yet.

        Args:
            name: of the module; submodules have a registered parent: ``pkg``, then ``pkg.mod``.
            source: Python text.
        """
        self._pool.register_module_source(name, source)

    def load_package(self, path: str | os.PathLike[str]) -> Package:
        """Open a hermetic archive. Nothing in it runs yet.

        Raises:
            ArchiveError: missing, damaged, not a torch.package archive, or with a manifest that lies.
        """
        return Package(self._pool, path)

    def create_movable(self, obj: Any) -> MovableObject:
        """The object as it is now, for use in any interpreter.

        Its tensors, parameters and buffers share their memory with the original and in
        all interpreters: what one writes all see.

        Args:
            obj: a PyObj of one of this pool's sessions, or an object of the host program.

        Raises:
            ConversionError: it cannot be pickled, holds a tensor that cannot cross, or an object of the host
                program is of a class that the program itself (``__main__``) defines.
        """
        if isinstance(obj, PyObj):
            return obj.session.create_movable(obj)
        from interpool.native import movable

        return self._pool.create_movable(movable.dump(obj))

    def serve(
        self,
        fd: int,
        *,
        module: str,
        function: str,
        worker: str,
        affinity: str,
        done_fd: int,
        pinned: bool = False,
        share: int | None = None,
    ) -> Connection:
        """Answer a connected stream socket that speaks TorchServe's worker protocol.

        A native thread reads whole messages without any GIL; for each it leases an
        interpreter. There it calls ``module.function(worker, fd, load_command)`` once, and what
        this has made with each message: ``service(message)`` returns ``(reply, keep_open)``, the reply
        as bytes or a bytearray. ``load_command`` is the connection's first message, TorchServe's
        load command. A message is a memoryview that ends with its call.

        Args:
            fd: the socket's descriptor; owned by the connection from here on, and closed where this raises.
            module: importable in the interpreters.
            function: its function, as above.
            worker: passed through.
            affinity: see ``acquire_session``.
            done_fd: a uint64 1 is written to it (as to an eventfd) after the end.
            pinned: answer all messages in one interpreter, the one with the fewest such connections;
                in another one once that is retired.
            share: the most interpreters that all leases with this affinity may have at once, from
                now until it is forgotten; None changes nothing.

        Raises:
            ValueError: ``share`` is less than one.
        """
        return self._pool.serve(
            fd,
            module=module,
            function=function,
            worker=worker,
            affinity=affinity,
            done_fd=done_fd,
            pinned=pinned,
            share=share,
        )

    def tell_all(self, module: str, function: str, argument: str) -> None:
        """Call ``module.function(argument)`` in every interpreter, beside whoever leases it.

        It runs on the interpreter's main thread as soon as that has the GIL, and is not waited for.
        """
        self._pool.tell_all(module, function, argument)

    def forget(self, affinity: str, interpreter: int | None = None) -> None:
        """Prefer no interpreter for ``affinity`` any more, or not that one; its model is gone there."""
        self._pool.forget(affinity, interpreter)

    def stats(self) -> PoolState:
        """What the pool is doing, JSON-able; ``PoolState`` says what is in it."""
        return self._pool.status()

    def dump_stacks(self, patience: float = 1.0) -> str:
        """The Python stacks of every thread of every interpreter, also of busy ones.

        Args:
            patience: seconds to wait, for all together. An interpreter whose GIL cannot
                be had in that time is named as such.

        Raises:
            ValueError: ``patience`` is not a number.
        """
        return describe_stacks(self._pool.stacks(patience), patience)

    def close(self) -> None:
        """Lease no more: waiting callers get PoolClosedError, open sessions stay good.

        Warns with ResourceWarning, which Python shows under ``-X dev`` or ``-W default``,
        of leases that have not been given back, and what they hold. A manager that is
        never closed does so when the process ends.

        The interpreters stay until then. Those that nobody has leased serve a later manager; the others are
        not given to anybody, as nobody can tell what was left in them.
        """
        if not self._pool.is_closed:
            self._pool.close()
            warn_of_open_leases(self._pool, "an InterpreterManager was closed")

    @property
    def min_size(self) -> int:
        """How many interpreters there are at least."""
        return self._pool.min_size

    @property
    def max_size(self) -> int:
        """How many interpreters there are at most."""
        return self._pool.max_size

    def __len__(self) -> int:
        """How many interpreters are free or leased; neither parked nor retired."""
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
        """Lease this very interpreter; see ``InterpreterManager.acquire_session``."""
        return self._pool.acquire(affinity, timeout, call_limit, self.interpreter_id)


class Package:
    """An opened hermetic archive: its file as it was when it was opened.

    When the package and all its objects are gone, so is what interpreters made of it.

    Attributes:
        path: absolute path of the archive file.
    """

    def __init__(self, pool: _native.Pool, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._package = pool.open_package(str(self.path))
        with open(f"/proc/self/fd/{self._package.fd}", "rb") as file:
            read_manifest(str(self.path), file, read_records(str(self.path), file))

    def load_entry(self) -> MovableObject:
        """The model of an archive that ``interpool pack`` made, for use in any interpreter.

        Raises:
            ArchiveError: the archive has none: other programs name theirs, see ``load_pickle``.
            RemoteError: unpickling it raised.
        """
        return self.load_pickle(ENTRY_PACKAGE, ENTRY_RESOURCE)

    def load_pickle(self, package: str, resource: str) -> MovableObject:
        """The pickled object, for use in any interpreter.

        It is made in one interpreter now, so that what is wrong with it shows
        here, and in others when first needed there.

        Raises:
            ArchiveError: there is no such resource.
            RemoteError: unpickling it raised.
        """
        return self._package.load_pickle(package, resource)

    def load_binary(self, package: str, resource: str) -> bytes:
        """A resource's bytes. Raises ArchiveError when there is no such resource."""
        return self._package.load_binary(package, resource)

    def load_text(self, package: str, resource: str) -> str:
        """A resource's text, UTF-8. Raises ArchiveError when there is no such resource."""
        return self.load_binary(package, resource).decode("utf-8")

    def acquire_session(self, timeout: float | None = None) -> InterpreterSession:
        """Lease an interpreter; the session's ``self`` is the archive's PackageImporter there.

        Raises:
            LeaseTimeoutError: none became free within ``timeout`` seconds.
        """
        return self._package.acquire_session(timeout)


_preparing = threading.Lock()
_prepared = False


def installation() -> dict[str, Any]:
    """Where the parts of this installation lie, as the process needs them.

    Raises:
        InterpreterStartError: torch is not installed, or it or Python is one that nobody has tried.
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
    """Load what all interpreters of this process share, once."""
    if not _prepared:
        # In this order: an import of torch that makes a manager has the first one already.
        with without_torch_imports(), _preparing:
            _prepare_alone()


def _prepare_alone() -> None:
    global _prepared
    if _prepared:
        return
    found = installation()
    # The process's variables and its directory may change, and the cache's place with them.
    copies = provision.present_copies()
    _native.prepare(**found, private_copy=copies.private_copy, libpython_copy=copies.libpython_copy)
    watch_host_torch(Path(found["torch_lib"]))
    watch_process_end()
    provision.sweep_later()
    _prepared = True


def _search_path() -> list[str]:
    return [os.path.abspath(entry or os.curdir) for entry in sys.path]
