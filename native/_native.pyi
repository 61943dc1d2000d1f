from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from interpool.native.pool.states import InterpreterStacks, OpenLease, PoolState

def threads_have_directories() -> bool: ...
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
) -> None: ...
def prepare_from(prepared: str) -> list[str]: ...
def adopt_host_torch(path: str) -> None: ...
def private_copy(path: str, slot: int) -> list[str]: ...
def pools() -> list[Pool]: ...
def copies() -> dict[tuple[str, int], list[str]]: ...

class OpenPackage:
    @property
    def fd(self) -> int: ...
    def load_pickle(self, package: str, resource: str) -> MovableObject: ...
    def load_binary(self, package: str, resource: str) -> bytes: ...
    def acquire_session(self, timeout: float | None = None) -> InterpreterSession: ...

class MovableObject:
    """An object that any interpreter of its pool can have.

    Materialised in each interpreter when it is first needed there. What
    ``InterpreterManager.create_movable`` made shares its tensors' memory in all
    interpreters: a write in one is seen by all. What ``Package.load_pickle`` made shares
    its weights' pages until somebody writes to them: a write is seen by its writer only.
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
            PoolClosedError: the pool was closed.
        """

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The same as calling it."""

    def call_kwargs(self, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
        """The same, with the arguments in an iterable and a dict."""

    async def call_async(self, *args: Any, **kwargs: Any) -> Any:
        """Call it in a free interpreter without a thread that waits; the result as a plain value.

        The call waits for an interpreter in the pool's queue, and runs on the object's own thread there. If
        the task that awaits it is cancelled, as by ``asyncio.timeout``, a call that waits does not begin.
        Python code that runs is interrupted once by ``CallInterrupted``; an import, native code, or code that
        catches it runs on to its end, and its result is dropped. The grad mode, inference mode and autocast
        of the event loop's thread hold in the call.

        Args:
            args: as for a call.
            kwargs: likewise.

        Raises:
            RuntimeError: no event loop runs.
            RemoteError: the object raised; carries the traceback's text.
            ConversionError: an argument or the result cannot cross.
            PoolClosedError: the pool was closed.
        """

    def acquire_session(
        self, timeout: float | None = None, call_limit: float | None = None
    ) -> InterpreterSession:
        """Lease an interpreter; the session's ``self`` is this object there.

        Args:
            timeout: seconds to wait for a free one; None waits for ever.
            call_limit: see ``InterpreterManager.acquire_session``.

        Raises:
            LeaseTimeoutError: none became free in time.
        """

    def unload(self, interpreter_id: int | None = None) -> None:
        """Drop the copy in that interpreter, or all copies.

        The next need makes a new one, as the object was at first.
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
    ) -> None: ...
    def result(self) -> Any:
        """What it returned, once; raises what it raised."""

    def cancel(self) -> None:
        """Nobody wants the result: it does not begin, or is interrupted."""

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
        """Wait so many seconds for its end; whether it has ended."""

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
            args: objects of this session, plain values, and dense tensors, which cross without a copy.
            kwargs: likewise.

        Raises:
            RemoteError: it raised; carries the traceback's text.
            ConversionError: an argument cannot cross.
            SessionError: the session is closed, or an argument is another session's.
        """

    def call(self, *args: Any, **kwargs: Any) -> PyObj:
        """The same as calling it."""

    def call_kwargs(self, args: Iterable[Any], kwargs: dict[str, Any]) -> PyObj:
        """The same, with the arguments in an iterable and a dict."""

    def attr(self, name: str) -> PyObj:
        """Its attribute. Raises RemoteError if it has none of that name."""

    def has_attr(self, name: str) -> bool:
        """Whether it has an attribute of that name."""

    def item(self, key: Any) -> PyObj:
        """Its item. Raises RemoteError if it has none of that key."""

    def __getitem__(self, key: Any) -> PyObj: ...
    def to_value(self) -> Any:
        """A plain value of it in the host program; tensors share their memory.

        Raises:
            ConversionError: it is, or holds, what cannot cross.
        """

class InterpreterSession:
    """One interpreter, leased until the session is closed. Use it as a context manager.

    One thread at a time may use it; it need not be the one that leased it.
    """

    @property
    def interpreter_id(self) -> int:
        """The number of its interpreter in this process, from 1."""

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""

    def global_(self, module: str, name: str) -> PyObj:
        """The name in the module, which is imported there if need be.

        Raises:
            RemoteError: the import raised, or the module has no such name.
            SessionError: the session is closed.
        """

    @property
    def self(self) -> PyObj:
        """What the session was leased for: a movable object, or a package's importer."""

    def from_value(self, value: Any) -> PyObj:
        """A plain value, or a dense tensor over the same memory, as an object there.

        Raises:
            ConversionError: it cannot cross.
        """

    def from_movable(self, movable: MovableObject) -> PyObj:
        """The movable object as this interpreter has it.

        Raises:
            RemoteError: it could not be made there; carries the traceback's text.
        """

    def is_owner(self, obj: PyObj) -> bool:
        """Whether the object is this session's."""

    def create_movable(self, obj: PyObj) -> MovableObject:
        """The object as it is now, for use in any interpreter of the pool; its tensors are shared.

        Raises:
            ConversionError: it cannot be pickled, or holds a tensor that cannot cross.
            SessionError: the object is another session's.
        """

    def close(self) -> None:
        """Give the interpreter back; the session's objects are good no more."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class PoolSettings:
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
    def park_after(self) -> float: ...
    @property
    def grace(self) -> float: ...
    def size(self, cores: int) -> tuple[int, int]: ...

class Pool:
    def __init__(self, settings: PoolSettings, search_path: list[str]) -> None: ...
    def acquire(
        self,
        affinity: str = "",
        timeout: float | None = None,
        call_limit: float | None = None,
        only: int | None = None,
    ) -> InterpreterSession: ...
    def resize(self, min_size: int, max_size: int) -> None: ...
    def limit(self, count: int) -> None: ...
    def isolate(self, affinity: str) -> None: ...
    def register_module_source(self, name: str, source: str) -> None: ...
    def open_package(self, path: str) -> OpenPackage: ...
    def create_movable(self, dump: tuple[bytes, list[Any], list[tuple[str, int]]]) -> MovableObject: ...
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
    ) -> Connection: ...
    def tell_all(self, module: str, function: str, argument: Any) -> None: ...
    def set_share(self, affinity: str, most: int) -> None: ...
    def forget(self, affinity: str, only: int | None = None) -> None: ...
    def close(self) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def min_size(self) -> int: ...
    @property
    def max_size(self) -> int: ...
    def instances(self) -> list[int]: ...
    def status(self) -> PoolState: ...
    def stacks(self, patience: float) -> list[InterpreterStacks]: ...
    def open_leases(self, patience: float) -> list[OpenLease]: ...
    def __len__(self) -> int: ...
