from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from interpool.native.pool.states import InterpreterStacks, OpenLease, PoolState

def threads_have_directories() -> bool:
    """Whether this system lets threads have working directories of their own."""

def prepare(
    *,
    executable: str,
    symbol_prefix: str,
    torch_lib: str,
    interposer: str,
    slot_library: str,
    loader: str,
    private_copy: Callable[[str, int], list[str]],
    search_path: list[str],
    notes: str,
    libpython_copy: Callable[[int], str],
) -> None:
    """Load what all interpreters of this process share.

    The arguments of the first call that succeeds hold until the process ends; later calls change nothing.

    Args:
        executable: ``sys.executable`` of the interpreters, absolute.
        symbol_prefix: the prefix of the ``Py*`` names in private copies.
        torch_lib: the folder of libtorch_cpu.so.
        interposer: the path of libinterpool_interpose.so.
        slot_library: the path of libinterpool_slot.so.
        loader: the path of interpool/native/inside/loader.py.
        private_copy: ``(path, slot)`` to the files to load, in order, so that ``path`` is loaded in the slot.
        search_path: ``sys.path``, for pools that name no other.
        notes: the folder of notes on imports of torch; "" for none.
        libpython_copy: a slot to the path of its libpython.

    Raises:
        InterpreterStartError: a library cannot be loaded.
    """

def prepare_from(prepared: str) -> list[str]:
    """Load what all interpreters share, as ``interpool prepare`` left it; returns their ``sys.path``.

    Args:
        prepared: the file, or a bundle's folder; "" for the default one.

    Raises:
        ProvisioningError: there is none, it is damaged, or it is of another interpool or torch.
        InterpreterStartError: a library cannot be loaded.
    """

def adopt_host_torch(path: str) -> None:
    """Announce that the host's libtorch_python is loaded, from this file."""

def private_copy(path: str, slot: int) -> list[str]:
    """Return the files to load, in order, so that a library is loaded in a slot.

    Args:
        path: the library.
        slot: the number of the slot.

    Raises:
        ProvisioningError: a copy cannot be made.
        InterpreterStartError: ``prepare`` was not called before.
    """

def pools() -> list[Pool]:
    """Every pool of this process, closed ones too."""

def copies() -> dict[tuple[str, int], list[str]]:
    """What ``private_copy`` has returned, by path and slot."""

class OpenPackage:
    """A snapshot of a hermetic archive, for all interpreters of one pool. Any thread may use it.

    The interpreters unload the archive when this and all its objects are gone.
    """

    @property
    def fd(self) -> int:
        """The descriptor of the snapshot; open as long as this object lives."""

    def load_pickle(self, package: str, resource: str) -> MovableObject:
        """Load a pickled object in one interpreter now, and in others when they first need it.

        Args:
            package: name of the Python package that contains the pickle.
            resource: name of the pickle in it.

        Raises:
            ArchiveError: there is no such resource, or the archive is damaged.
            RemoteError: unpickling it raised; carries the traceback's text.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
        """

    def load_binary(self, package: str, resource: str) -> bytes:
        """Return a resource's bytes.

        Args:
            package: name of the Python package that contains the resource.
            resource: name of the resource in it.

        Raises:
            ArchiveError: there is no such resource, or the archive is damaged.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
        """

    def acquire_session(self, timeout: float | None = None) -> InterpreterSession:
        """Lease an interpreter; the session's ``self`` is the archive's PackageImporter there.

        Args:
            timeout: seconds to wait for a free one; None for no limit.

        Raises:
            LeaseTimeoutError: none became free in time.
            ArchiveError: the archive is damaged.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
            ValueError: ``timeout`` is negative or not a number.
        """

class MovableObject:
    """An object that any interpreter of its pool can have.

    Materialised in each interpreter when it is first needed there. What
    ``InterpreterManager.create_movable`` made shares its tensors' memory in all
    interpreters: a write in one is seen by all. What ``Package.load_pickle`` made shares
    its weights' pages until one interpreter writes to them: only that one sees the write.
    The object goes from all interpreters with its last reference. Any thread may use it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it in a free interpreter; the result as a plain value.

        Args:
            args: plain values (None, bool, int, float, str, bytes, list, tuple, dict) and dense tensors
                of any shape, dtype and device, which cross without a copy; so do those of the result.
            kwargs: likewise.

        Raises:
            RemoteError: the object raised; carries the traceback's text.
            ConversionError: an argument or the result cannot cross.
            SessionError: an argument is an object of a session.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
        """

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call it in a free interpreter, as ``movable(*args, **kwargs)`` does.

        Args:
            args: plain values and dense tensors, as there.
            kwargs: likewise.

        Raises:
            RemoteError: the object raised; carries the traceback's text.
            ConversionError: an argument or the result cannot cross.
            SessionError: an argument is an object of a session.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
        """

    def call_kwargs(self, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
        """Call it in a free interpreter, with the arguments in an iterable and a dict.

        Args:
            args: plain values and dense tensors, as for a call.
            kwargs: the same by name.

        Raises:
            TypeError: ``args`` is not iterable, ``kwargs`` is not a dict, or a name in it is not text.
            RemoteError: the object raised; carries the traceback's text.
            ConversionError: an argument or the result cannot cross.
            SessionError: an argument is an object of a session.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
        """

    async def call_async(self, *args: Any, **kwargs: Any) -> Any:
        """Call it in a free interpreter without a thread that waits; the result as a plain value.

        The call waits for an interpreter in the pool's queue, and runs on the object's own thread there. If
        the task that awaits it is cancelled, as by ``asyncio.timeout``, a call that waits does not begin.
        Python code that runs is interrupted once by ``CallInterrupted``. An import, native code, or code that
        catches it runs on to its end, and its result is dropped. The grad mode, inference mode and autocast
        of the event loop's thread hold in the call.

        Args:
            args: as for a call.
            kwargs: likewise.

        Raises:
            RuntimeError: no event loop runs.
            RemoteError: the object raised; carries the traceback's text.
            ConversionError: an argument or the result cannot cross.
            SessionError: an argument is an object of a session, or the process was forked from one that had
                opened a pool.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
        """

    def acquire_session(
        self, timeout: float | None = None, call_limit: float | None = None
    ) -> InterpreterSession:
        """Lease an interpreter; the session's ``self`` is this object there.

        Args:
            timeout: seconds to wait for a free one; None for no limit.
            call_limit: seconds that each use of the session or its objects may take, and the making of
                ``self``; see ``InterpreterManager.acquire_session``. None for no limit.

        Raises:
            LeaseTimeoutError: none became free in time.
            RemoteError: the object could not be made there; carries the traceback's text.
            CallTimeoutError: making the object there took longer than ``call_limit``.
            PoolClosedError: the pool was closed.
            InterpreterStartError: every interpreter was retired, and no new one starts.
            ValueError: ``timeout`` is negative or not a number, or ``call_limit`` is not positive.
        """

    def unload(self, interpreter_id: int | None = None) -> None:
        """Drop the copy in that interpreter, or all copies.

        The next need makes a new one, as the object was at first.

        Args:
            interpreter_id: the number of the interpreter; None for all.
        """

Prediction = tuple[bytes, bytes, int, list[tuple[bytes, bytes]], bytes]
"""The answer to one request: its id, a content type, a status, headers, a body."""
Reply = tuple[int, bytes, list[Prediction]]
"""What a worker says to a message: if the code is not 200, the text is the answer to all requests."""
Request = tuple[bytes, Mapping[bytes, bytes | str], Sequence[tuple[bytes, bytes, bytes]]]
"""One request of a batch: an id, headers in Latin-1 or as text, and parameters: name, content type, value."""

class Inbox:
    """Where the answers of an event loop's channels arrive."""

    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """A descriptor that is readable while there are answers."""

    def take(self) -> list[tuple[int, Reply | None]]:
        """What has arrived, by the channels' numbers; None: the channel has ended, or has sent no answer."""

class Channel:
    """A worker's connection without a socket: an event loop asks, and its inbox has the answers.

    Args:
        inbox: the loop's.
        load_command: the first message, TorchServe's load command.
    """

    def __init__(self, inbox: Inbox, load_command: bytes) -> None: ...
    @staticmethod
    def find(number: int) -> Channel | None:
        """The channel of that number in this process."""

    @property
    def number(self) -> int: ...
    @property
    def load_command(self) -> bytes: ...
    @property
    def is_closed(self) -> bool: ...
    def predict(self, requests: list[Request]) -> None:
        """Ask for the answers of a batch, when the message before has been answered. Does not wait.

        Raises:
            TypeError: what must be bytes is not.
            ValueError: a part has 2 GiB or more.
        """

    def close(self) -> None:
        """End it; what has not been answered is not."""

class CallInbox:
    """Where the calls arrive that an event loop awaits, when they have ended."""

    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """A descriptor that is readable while there are some."""

    def take(self) -> list[AwaitedCall]: ...

class AwaitedCall:
    """A call of a movable object, begun or waiting for an interpreter; its inbox gets it at its end."""

    def __init__(
        self, movable: MovableObject, args: Iterable[Any], kwargs: dict[str, Any], inbox: CallInbox
    ) -> None:
        """Begin it, or queue it for an interpreter.

        Args:
            movable: the object to call.
            args: as for ``MovableObject.call_kwargs``.
            kwargs: likewise.
            inbox: gets the call at its end.

        Raises:
            TypeError: as for ``MovableObject.call_kwargs``.
            ConversionError: an argument cannot cross.
            SessionClosedError: an argument is an object of a closed session.
        """

    def result(self) -> Any:
        """What it returned, once; raises what it raised."""

    def cancel(self) -> None:
        """Give up the result: a call that waits does not begin, and one that runs is interrupted."""

class Connection:
    """A worker's connection that ``InterpreterManager.serve`` answers. Any thread may use it."""

    @property
    def alive(self) -> bool:
        """Whether it is still answered."""

    @property
    def running(self) -> float | None:
        """Seconds that the call which runs has taken; None if none runs."""

    def interrupt(self) -> bool:
        """Raise CallInterrupted in the model's code that the running call is in; whether there is one."""

    @property
    def requests(self) -> list[str]:
        """The ids of the requests that the running call answers; none if no call runs."""

    @property
    def importing(self) -> bool:
        """Whether the last interruption found the call in an import, which is not interrupted."""

    @property
    def where(self) -> str:
        """The stack at which the last interruption found the call; "" if that cannot be known."""

    def give_up(self) -> int | None:
        """Leave the running call to itself and retire its interpreter; that one's number."""

    @property
    def load_command(self) -> bytes:
        """TorchServe's load command, the first message; empty before it came."""

    def close(self) -> None:
        """Shut the socket down; what the running call returns is thrown away."""

    def join(self, timeout: float) -> bool:
        """Wait so many seconds for its end; whether it has ended.

        Raises:
            ValueError: ``timeout`` is not a number.
        """

class PyObj:
    """An object in an interpreter, as its session sees it. It is good while the session is open."""

    @property
    def session(self) -> InterpreterSession:
        """The session that it belongs to."""

    @property
    def interpreter_id(self) -> int:
        """The number of its interpreter."""

    def __call__(self, *args: Any, **kwargs: Any) -> PyObj:
        """Call it there; the result stays there.

        Args:
            args: objects of this session, plain values, and dense tensors of any shape, dtype and device,
                which cross without a copy.
            kwargs: likewise.

        Raises:
            RemoteError: it raised; carries the traceback's text.
            ConversionError: an argument cannot cross.
            SessionError: the session is closed, or an argument is another session's.
        """

    def call(self, *args: Any, **kwargs: Any) -> PyObj:
        """Call it there, as ``obj(*args, **kwargs)`` does.

        Args:
            args: objects of this session, plain values, and dense tensors, as there.
            kwargs: likewise.

        Raises:
            RemoteError: it raised; carries the traceback's text.
            ConversionError: an argument cannot cross.
            SessionError: the session is closed, or an argument is another session's.
        """

    def call_kwargs(self, args: Iterable[Any], kwargs: dict[str, Any]) -> PyObj:
        """Call it there, with the arguments in an iterable and a dict.

        Args:
            args: objects of this session, plain values, and dense tensors, as for a call.
            kwargs: the same by name.

        Raises:
            TypeError: ``args`` is not iterable, ``kwargs`` is not a dict, or a name in it is not text.
            RemoteError: it raised; carries the traceback's text.
            ConversionError: an argument cannot cross.
            SessionError: the session is closed, or an argument is another session's.
        """

    def attr(self, name: str) -> PyObj:
        """Its attribute.

        Raises:
            RemoteError: it has none of that name.
            SessionError: the session is closed.
        """

    def has_attr(self, name: str) -> bool:
        """Whether it has an attribute of that name.

        Raises:
            RemoteError: looking it up raised another exception than AttributeError.
            SessionError: the session is closed.
        """

    def item(self, key: Any) -> PyObj:
        """Its item.

        Args:
            key: an object of this session, or a plain value.

        Raises:
            RemoteError: it has none of that key.
            ConversionError: the key cannot cross.
            SessionError: the session is closed, or the key is another session's.
        """

    def __getitem__(self, key: Any) -> PyObj:
        """The same as ``item``."""

    def to_value(self) -> Any:
        """A plain value of it in the host program; tensors share their memory.

        Raises:
            ConversionError: it is, or holds, what cannot cross.
            SessionError: the session is closed.
        """

class InterpreterSession:
    """One interpreter, leased until the session is closed. Use it as a context manager.

    One thread at a time may use it; it need not be the one that leased it. With a call limit, each use of it
    or of its objects may also raise CallTimeoutError. Once its interpreter is retired, each raises
    InterpreterRetiredError. Both are SessionErrors.
    """

    @property
    def interpreter_id(self) -> int:
        """The number of its interpreter in this process, from 1."""

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""

    def global_(self, module: str, name: str) -> PyObj:
        """The name in the module, which is imported there if need be.

        Args:
            module: the module's full name.
            name: a name in it, such as a function's.

        Raises:
            RemoteError: the import raised, or the module has no such name.
            SessionError: the session is closed.
        """

    @property
    def self(self) -> PyObj:
        """What the session was leased for: a movable object, or a package's importer.

        Raises:
            SessionError: it was leased for neither, or it is closed.
        """

    def from_value(self, value: Any) -> PyObj:
        """A plain value, or a dense tensor over the same memory, as an object there.

        Raises:
            ConversionError: it cannot cross.
            SessionError: the session is closed, or the value is another session's object.
        """

    def from_movable(self, movable: MovableObject) -> PyObj:
        """The movable object as this interpreter has it.

        Raises:
            RemoteError: it could not be made there; carries the traceback's text.
            SessionError: the session is closed.
        """

    def is_owner(self, obj: PyObj) -> bool:
        """Whether the object is this session's."""

    def create_movable(self, obj: PyObj) -> MovableObject:
        """The object as it is now, for use in any interpreter of the pool; its tensors are shared.

        Raises:
            ConversionError: it cannot be pickled, or holds a tensor that cannot cross.
            SessionError: the session is closed, or the object is another session's.
        """

    def close(self) -> None:
        """Give the interpreter back; the session's objects are good no more."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class PoolSettings:
    """How large a pool is, and how patient.

    Args:
        min_size: interpreters that it starts, and keeps; None for the number of cores.
        max_size: the most that it may grow to. None for ``min_size``, or if that is None, too, for four times
            the number of cores.
        park_after: seconds without need after which an interpreter above ``min_size`` is parked.
        grace: seconds in which an interrupted call may return before its interpreter is retired.
        preload: modules that each interpreter imports before its first lease.

    Raises:
        ValueError: ``min_size`` is not positive, ``max_size`` is below it, or a time is not a positive
            number.
    """

    def __init__(
        self,
        min_size: int | None = None,
        max_size: int | None = None,
        *,
        park_after: float = ...,
        grace: float = ...,
        preload: Sequence[str] = ...,
    ) -> None: ...
    @property
    def park_after(self) -> float:
        """Seconds."""

    @property
    def grace(self) -> float:
        """Seconds."""

    def size(self, cores: int) -> tuple[int, int]:
        """The minimum and maximum size of a pool on a machine with so many cores.

        Raises:
            ValueError: the minimum would not be positive, or the maximum would be below it.
        """

class Pool:
    """The pool behind an ``InterpreterManager``. Any thread may use it.

    Args:
        settings: its sizes and times.
        search_path: ``sys.path`` of its interpreters.

    Raises:
        InterpreterStartError: ``prepare`` was not called before, an interpreter did not start, or it could
            not import a preloaded module.
        ProvisioningError: a private copy cannot be made.
    """

    def __init__(self, settings: PoolSettings, search_path: list[str]) -> None: ...
    def acquire(
        self,
        affinity: str = "",
        timeout: float | None = None,
        call_limit: float | None = None,
        only: int | None = None,
    ) -> InterpreterSession:
        """Lease an interpreter.

        Args:
            affinity: any name; an interpreter that has served it before is preferred.
            timeout: seconds to wait for a free one; None for no limit.
            call_limit: seconds that each use of the session or its objects may take; None for no limit.
            only: the number of the one interpreter to lease; None for any.

        Raises:
            LeaseTimeoutError: none became free in time.
            InterpreterRetiredError: ``only`` was retired, is dedicated to another affinity, or is not this
                pool's.
            InterpreterStartError: every interpreter was retired, and no new one starts.
            PoolClosedError: the pool was closed.
            ValueError: ``timeout`` is negative or not a number, or ``call_limit`` is not positive.
        """

    def resize(self, min_size: int, max_size: int) -> None:
        """Change the sizes: missing interpreters start in the background, those above are parked.

        Args:
            min_size: the minimum number of interpreters.
            max_size: the maximum number.

        Raises:
            ValueError: ``min_size`` is not positive, or ``max_size`` is below it.
        """

    def limit(self, count: int) -> None:
        """Lease only the first ``count`` interpreters from now on, except those leased by number.

        Raises:
            ValueError: ``count`` is not between 1 and the size of the pool.
        """

    def isolate(self, affinity: str) -> None:
        """Lease only dedicated interpreters for ``affinity``, until it is forgotten.

        Raises:
            ValueError: ``affinity`` is empty.
        """

    def register_module_source(self, name: str, source: str) -> None:
        """Make ``import name`` use this source in every interpreter that has not imported it yet.

        Args:
            name: the module's full name.
            source: Python text, which is compiled when it is imported.

        Raises:
            TypeError: one of them is not text, or has a lone surrogate.
        """

    def open_package(self, path: str) -> OpenPackage:
        """Take a snapshot of an archive, without looking into it.

        Raises:
            ArchiveError: the file is missing, empty or not a plain file, or cannot be copied.
        """

    def create_movable(self, dump: tuple[bytes, list[Any], list[tuple[str, int]]]) -> MovableObject:
        """Make an object of what ``interpool.native.movable.dump`` returned.

        Args:
            dump: a pickle, the tensors that it refers to, and the archives that it needs: the path and the
                number of each one's snapshot.

        Raises:
            ConversionError: a tensor cannot cross.
            ArchiveError: an archive is closed.
        """

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

        Args:
            asked_by: the socket's descriptor, or a channel; the connection owns it from now on, and closes it
                if this raises.
            module: importable in the interpreters.
            function: its function, ``(worker, load_command) -> service``; ``service(message)`` returns
                ``(reply, keep_open)``, the reply as bytes.
            worker: passed to the function.
            affinity: as in ``acquire``.
            done_fd: after the end, a uint64 1 is written to it, as to an eventfd.
            pinned: answer all messages in one interpreter, as long as it is not retired.
            share: the most interpreters that all leases with this affinity may have at once, until it is
                forgotten; None changes nothing.

        Raises:
            ValueError: ``share`` is less than one.
            RuntimeError: the system starts no more threads.
        """

    def tell_all(self, module: str, function: str, argument: Any) -> None:
        """Call ``module.function(argument)`` in every interpreter, including leased ones.

        This does not wait for the calls. What they raise goes to stderr.

        Args:
            module: importable in the interpreters.
            function: its function.
            argument: a plain value, or a dense tensor.

        Raises:
            ConversionError: the argument cannot cross.
        """

    def forget(self, affinity: str, only: int | None = None) -> None:
        """Stop to prefer interpreters for an affinity; raises nothing if it is unknown.

        Args:
            affinity: the name.
            only: the number of the one interpreter that forgets it. None for all: they also forget its share,
                its counters, its dedicated interpreters and its shared weights.
        """

    def close(self) -> None:
        """Stop leasing: waiting callers get PoolClosedError, open sessions stay valid."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""

    @property
    def min_size(self) -> int:
        """The minimum number of interpreters."""

    @property
    def max_size(self) -> int:
        """The maximum number of interpreters."""

    def instances(self) -> list[int]:
        """The numbers of the interpreters that may be leased."""

    def status(self) -> PoolState:
        """The pool's state, which can be converted to JSON."""

    def stacks(self, patience: float) -> list[InterpreterStacks]:
        """The Python stacks of every thread of every interpreter, including busy ones.

        Args:
            patience: seconds to wait for all together.

        Raises:
            ValueError: ``patience`` is not a number.
        """

    def open_leases(self, patience: float) -> list[OpenLease]:
        """The leases that were not returned, with the objects of their sessions.

        Args:
            patience: seconds to wait for all together.

        Raises:
            ValueError: ``patience`` is not a number, and there is such a lease.
        """

    def __len__(self) -> int:
        """The number of interpreters that are free or leased, without dedicated ones."""
