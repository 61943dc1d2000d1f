"""CPython's private names that interpool uses: the only place to update for its next release.

``inside/loader.py`` and ``handler/frontend/shim.py`` import theirs themselves: the first runs before imports
are safe, the second stands alone. CPython's layouts for C++ code are in ``native/cpp/upstream``.
"""

from __future__ import annotations

import _compat_pickle
import importlib
import importlib._bootstrap
import linecache
import os
import sys
import threading
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from interpool.native.upstream.private_names import PrivateName, problems

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from types import FrameType
    from typing import Self
    from weakref import WeakValueDictionary, ref
    from zipfile import ZipFile

PREEXEC_ARGUMENT = -1 if sys.version_info >= (3, 14) else -2
"""The position of ``preexec_fn`` among subprocess's arguments of ``_posixsubprocess.fork_exec``."""

_UTF8_NAME = 1 << 11

_SUBINTERPRETERS = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"

_ENVIRON: Any = os.environ  # a model may replace os.environ

RENAMED_GLOBALS = _compat_pickle.NAME_MAPPING
"""Present module and name of Python 2's globals in pickles."""

RENAMED_MODULES = _compat_pickle.IMPORT_MAPPING
"""Present names of Python 2's modules in pickles."""

ModuleLock: Any = importlib._bootstrap._ModuleLockManager  # type: ignore[attr-defined]
"""Context manager for the lock under which Python imports the module of that name."""

IMPORTLIB_FILE = "<frozen importlib._bootstrap>"
"""The file name of frames of importlib's functions for import statements."""


# Functions in which a pool's thread waits for work, and their variable for the queue from which it comes.
_QUEUES = {
    ("concurrent.futures.thread", "_worker"): "work_queue",
    ("multiprocessing.pool", "worker"): "inqueue",
    ("multiprocessing.pool", "_handle_tasks"): "taskqueue",
    ("multiprocessing.pool", "_handle_results"): "outqueue",
}
RENEWS_WORKERS = "multiprocessing.pool._handle_workers"
"""The function of a pool's thread that starts other threads in place of those that ended."""


def _unpickler(name: str, why: str, *parameters: str) -> PrivateName:
    return PrivateName(f"pickle:_Unpickler.{name}", why, ("self", *parameters))


NAMES = (
    # Names that private interpreters replace.
    PrivateName("_frozen_importlib:ModuleSpec", "inside/loader.py: the spec of a private copy"),
    PrivateName(
        "_frozen_importlib:_call_with_frames_removed",
        "inside/loader.py: tracebacks as those of any import",
        ("f", "args", "kwds"),
    ),
    PrivateName(
        "_frozen_importlib_external:ExtensionFileLoader.create_module",
        "inside/loader.py loads a private copy instead",
        ("self", "spec"),
    ),
    PrivateName("_frozen_importlib:_load_unlocked", "inside/import_ends.py overrides it", ("spec",)),
    PrivateName(
        "_frozen_importlib:_find_and_load_unlocked",
        "inside/import_ends.py: it looks up _load_unlocked in the module",
        mentions=("_load_unlocked",),
    ),
    PrivateName("_frozen_importlib:_find_and_load", "cpp/upstream/cpython.h: a thread in it is importing"),
    PrivateName(
        "_frozen_importlib:_is_initializing"
        if sys.version_info >= (3, 15)
        else "_frozen_importlib:_find_and_load",
        "inside/lean_imports.py, inside/module_scope.py: a module's spec, and whether it is being imported",
        mentions=("__spec__", "_initializing"),
    ),
    PrivateName("_imp:create_dynamic", "inside/loader.py: loads an extension module"),
    PrivateName("ctypes:_dlopen", "inside/bootstrap.py opens a private copy instead"),
    PrivateName(
        "ctypes:CDLL._load_library" if sys.version_info >= (3, 14) else "ctypes:CDLL.__init__",
        "inside/bootstrap.py: it looks up _dlopen in the module",
        mentions=("_dlopen",),
    ),
    PrivateName("_ctypes:dlopen", "upstream/torch_symbols.py: the library that looks torch's symbols up"),
    PrivateName("_posixsubprocess:fork_exec", "inside/bootstrap.py refuses a preexec_fn"),
    PrivateName(
        "multiprocessing.context:_default_context._actual_context",
        "handler/backend/process_view.py: each model chooses how processes start",
    ),
    PrivateName(
        "multiprocessing.process:_current_process._config",
        "handler/backend/process_view.py: each model's directory for temporary files",
    ),
    *(
        [PrivateName("_interpreters:create", "inside/bootstrap.py refuses subinterpreters")]
        if sys.version_info >= (3, 14)
        else []
    ),
    *(
        PrivateName(f"{_SUBINTERPRETERS}:{name}", "pool/manager.py refuses to work in subinterpreters")
        for name in ("get_current", "get_main")
    ),
    PrivateName(
        "os:_Environ.__setitem__",
        "inside/inductor.py: os.environ looks up putenv in the module",
        mentions=("putenv",),
    ),
    PrivateName(
        "os:_Environ.__delitem__",
        "inside/process_guards.py: the same for unsetenv",
        mentions=("unsetenv",),
    ),
    PrivateName("os:_Environ.__iter__", "the view of each model has its own variables", mentions=("_data",)),
    PrivateName("urllib.request:_opener", "handler/backend/process_view.py: it has a model's proxies"),
    PrivateName("locale:_setlocale", "inside/process_guards.py: the process's locale is the host's"),
    PrivateName("warnings:_processoptions", "handler/backend/service.py heeds PYTHONWARNINGS", ("args",)),
    PrivateName("warnings:_filters_mutated", "the same for its own filters of warnings"),
    PrivateName("logging:_handlers", "handler/backend/own_changes.py: each model's handlers, by name"),
    PrivateName("logging:_handlerList", "the same, for logging.shutdown"),
    PrivateName(
        "logging.config:_clearExistingHandlers",
        "closes the handlers in these two",
        mentions=("_handlers", "_handlerList"),
    ),
    PrivateName("atexit:_run_exitfuncs", "processes that end by os._exit, and private interpreters"),
    *(
        [
            PrivateName(f"asyncio.{name}", "handler/backend/process_view.py: each model's event loop")
            for name in (
                "events:_get_event_loop_policy",
                "events:_set_event_loop_policy",
                "unix_events:_DefaultEventLoopPolicy",
            )
        ]
        if sys.version_info >= (3, 14)
        else []
    ),
    # Imports from archives.
    PrivateName(
        "importlib._bootstrap:_ModuleLockManager",
        "archive/importer.py, pool/host_torch.py: two threads, one import",
        ("name",),
    ),
    PrivateName("linecache:cache", "the sources of an unloaded model are removed from it"),
    # Pickles.
    PrivateName("_compat_pickle:NAME_MAPPING", "archive/pickle_names.py: names in pickles of Python 2"),
    PrivateName("_compat_pickle:IMPORT_MAPPING", "archive/pickle_names.py: modules in those pickles"),
    PrivateName("pickle:_Unpickler.dispatch", "archive/unpickler.py replaces steps by opcode"),
    PrivateName(
        "pickle:_Unpickler.load",
        "archive/unpickler.py looks at the stack between steps, and reads like a step",
        ("self",),
        mentions=("stack", "append", "read", "proto", "metastack"),
    ),
    *(
        _unpickler(f"load_{step}", "archive/unpickler.py checks what the step is about to do")
        for step in ("binpersid", "build", "bytearray8", "persid")
    ),
    # Frames of the pure Python pickler, with which packing finds the object that could not be pickled.
    PrivateName("pickle:_Pickler.dump", "packing/write/pickling.py", mentions=("obj",)),
    PrivateName("pickle:_Pickler.save", "packing/write/pickling.py: the innermost part", mentions=("obj",)),
    PrivateName("pickle:_Pickler._batch_setitems", "packing/write/pickling.py: its path", mentions=("k",)),
    # Members appended to archives.
    PrivateName(
        "zipfile:ZipInfo._encodeFilenameFlags",
        "archiver_ext/appending.py: a member's flags as they were read",
        ("self",),
        mentions=("flag_bits",),
    ),
    # Functions in which idle threads wait, and their variables.
    PrivateName(
        "threading:Condition.wait",
        "handler/backend/model_threads.py",
        ("self", "timeout"),
        mentions=("waiter", "_waiters"),
    ),
    PrivateName("asyncio.base_events:BaseEventLoop._run_once", "the same", mentions=("_ready", "select")),
    PrivateName("selectors:EpollSelector.select", "the same", ("self", "timeout")),
    PrivateName("concurrent.futures.thread:_worker", "the same", mentions=("work_queue",)),
    PrivateName("multiprocessing.pool:worker", "the same", mentions=("inqueue",)),
    PrivateName("multiprocessing.pool:Pool._handle_tasks", "the same", mentions=("taskqueue",)),
    PrivateName("multiprocessing.pool:Pool._handle_results", "the same", mentions=("outqueue",)),
    PrivateName("multiprocessing.pool:Pool._handle_workers", "the same"),
    # Names of threads, for cpp/slot/stacks.cc; cpp/upstream/cpython.h has these names.
    PrivateName(
        "threading:_active", "cpp/upstream/cpython.h: the threads, by their ident; inside/traces.py passes by"
    ),
    PrivateName("typing:_overload_registry", "inside/traces.py passes by: each function by its name"),
    PrivateName(
        "concurrent.futures.thread:_threads_queues", "inside/traces.py passes by: the work of executors"
    ),
    PrivateName(
        "threading:Thread.__init__", "cpp/upstream/cpython.h: a thread's name", mentions=("_name",)
    ),
    PrivateName("threading:_DummyThread", "cpp/upstream/cpython.h: a thread that threading did not start"),
    # Decoding of requests by cpp/slot/otf_messages.cc; cpp/upstream/cpython_types.h has these names.
    PrivateName("os:_Environ.__init__", "cpp/upstream/cpython_types.h: variables", mentions=("_data",)),
    PrivateName("json:_default_decoder", "cpp/upstream/cpython_types.h: decodes; handler/backend/codec.py"),
    PrivateName(
        "json:JSONDecoder.raw_decode",
        "cpp/upstream/cpython_types.h: the decoder calls it; handler/backend/codec.py detects a replacement",
        mentions=("scan_once",),
    ),
    # The small process beside each worker.
    PrivateName("_socket:socket", "handler/frontend/shim.py saves the memory that socket takes"),
)  # fmt: skip
"""All private names, by purpose."""


def keep_name_flags(file: ZipFile) -> None:
    """Keep the members' UTF-8 flags when the directory of an open zip is written.

    From 3.14 on, Python clears the flag of ASCII names in the directory, but not in the members' own headers.
    """
    from zipfile import ZipInfo

    class AsRead(ZipInfo):
        __slots__ = ()

        def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802  Python's own name
            name, flags = super()._encodeFilenameFlags()  # type: ignore[misc]
            return name, flags | (self.flag_bits & _UTF8_NAME)

    for info in file.infolist():
        info.__class__ = AsRead


def is_importing(spec: object) -> bool:
    """Whether a thread is importing the module of this spec."""
    return bool(getattr(spec, "_initializing", False))


def forget_source_lines(prefixes: tuple[str, ...]) -> None:
    """Remove files with these prefixes from linecache, which refers to their modules' loaders."""
    for file in [file for file in linecache.cache if file.startswith(prefixes)]:
        del linecache.cache[file]


def run_exit_functions() -> None:
    """Call the ``atexit`` functions, as Python does first when it ends normally."""
    import atexit

    atexit._run_exitfuncs()


def replace_dlopen(make: Callable[[Callable[..., int]], Callable[..., int]]) -> None:
    """Replace the function by which ctypes opens libraries; ``make`` gets the stock one."""
    import ctypes

    ctypes._dlopen = make(ctypes._dlopen)  # type: ignore[attr-defined]


def replace_load(make: Callable[[Callable[[Any], Any]], Any]) -> None:
    """Replace the function that loads a module once it is found; ``make`` gets the stock one."""
    bootstrap: Any = importlib._bootstrap
    stock = bootstrap._load_unlocked
    made = make(stock)
    # Python leaves the frames of this file out of tracebacks.
    made.__code__ = made.__code__.replace(co_filename=stock.__code__.co_filename)
    bootstrap._load_unlocked = made


def replace_fork_exec(make: Callable[[Callable[..., int]], Callable[..., int]]) -> None:
    """Replace the function that starts programs.

    ``make`` gets the stock one. Call before subprocess is imported.
    """
    import _posixsubprocess

    _posixsubprocess.fork_exec = make(_posixsubprocess.fork_exec)


def replace_create_interpreter(stand_in: Callable[..., NoReturn]) -> None:
    """Replace the function that creates subinterpreters. Before 3.14 only CPython's own tests create any."""
    if sys.version_info >= (3, 14):
        import _interpreters

        _interpreters.create = stand_in


def in_subinterpreter() -> bool:
    """Return whether this is another interpreter of CPython's than the one that the program started in."""
    with suppress(ImportError):  # a Python that was built without it cannot create any from Python code
        interpreters = importlib.import_module(_SUBINTERPRETERS)
        return bool(interpreters.get_current() != interpreters.get_main())
    return False


def replace_setlocale(make: Callable[[Callable[..., str], type[Exception]], Callable[..., str]]) -> None:
    """Replace the function by which ``locale.setlocale`` sets the process's locale.

    Args:
        make: gets the stock function and ``locale.Error``.
    """
    import _locale

    _locale.setlocale = make(_locale.setlocale, _locale.Error)  # type: ignore[attr-defined]
    # locale.py imports it by name, and may not be imported yet.
    contents = globals_of("locale")
    if "_setlocale" in contents:
        contents["_setlocale"] = _locale.setlocale


def attributes_of(module: object) -> dict[str, Any]:
    """Return a module's own attributes. Runs none of its code: any object may be in ``sys.modules``."""
    if issubclass(type(module), ModuleType):
        contents: dict[str, Any] = vars(ModuleType)["__dict__"].__get__(module)
        return contents
    try:
        found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return found


def globals_of(module: str) -> dict[str, Any]:
    """Return the globals of an imported module, and run no code of an unusual one.

    They are empty if the module is not imported, or if another object has its name.
    """
    found = sys.modules.get(module)
    return attributes_of(found) if issubclass(type(found), ModuleType) else {}


def replace_environ(variables: dict[bytes, bytes]) -> None:
    """Replace the contents of Python's ``os.environ``, in the form of ``environ_data``.

    The process's variables stay.
    """
    _ENVIRON._data.clear()
    _ENVIRON._data.update(variables)


def environ_data() -> dict[bytes, bytes]:
    """Return a copy of the contents of Python's own ``os.environ``, even if a model has replaced it."""
    return dict(_ENVIRON._data)


def kept_for_callers() -> list[object]:
    """Return registries in which Python's library keeps functions per owner.

    Threads, their work, overloads.
    """
    import typing

    executors = sys.modules.get("concurrent.futures.thread")
    return [
        threading._active,  # type: ignore[attr-defined]
        typing._overload_registry,  # type: ignore[attr-defined]
        getattr(executors, "_threads_queues", None),
    ]


def waits_for_work(frame: FrameType) -> bool:
    """Return whether a thread waits, without a time limit, until another thread gives it work.

    Args:
        frame: the thread's innermost one.
    """
    where = frame.f_globals.get("__name__"), frame.f_code.co_name
    if where == ("threading", "wait"):
        names = frame.f_locals
        condition: Any = names.get("self")
        is_unlimited = type(condition) is threading.Condition and names["timeout"] is None
        return is_unlimited and names.get("waiter") in condition._waiters
    if where == ("selectors", "select"):  # of an event loop that reads only what wakes it
        names, caller = frame.f_locals, frame.f_back
        loop = caller.f_locals.get("self") if caller is not None else None
        is_unlimited = names["timeout"] in (None, -1) and len(names["self"].get_map()) == 1
        return is_unlimited and not getattr(loop, "_ready", True)
    queue = frame.f_locals.get(_QUEUES[where]) if where in _QUEUES else None
    return queue is not None and queue.empty()


def filter_warnings(options: str) -> None:
    """Filter warnings according to a value of PYTHONWARNINGS."""
    import warnings

    warnings._processoptions([option for option in options.split(",") if option])  # type: ignore[attr-defined]


def replace_warnings_filters(filters: list[Any]) -> None:
    """Replace the contents of the list of warning filters, to which C code refers."""
    import warnings

    if warnings.filters != filters:
        warnings.filters[:] = filters  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def event_loop_policies() -> tuple[Any, Callable[[], Any], Callable[[Any], None]]:
    """Return asyncio's default policy class of event loops, and functions to get and set the present one.

    From 3.14 on, the public functions issue warnings, which raise if a model turns warnings into errors.
    """
    import asyncio

    if sys.version_info >= (3, 14):
        from asyncio import events, unix_events

        return (
            unix_events._DefaultEventLoopPolicy,
            events._get_event_loop_policy,
            events._set_event_loop_policy,
        )
    else:  # noqa: RET505 - without it, mypy takes what follows for unreachable
        return asyncio.DefaultEventLoopPolicy, asyncio.get_event_loop_policy, asyncio.set_event_loop_policy


class LogHandlers(NamedTuple):
    """The handlers that ``logging.config`` closes when it configures: by their names, and all."""

    by_name: WeakValueDictionary[str, logging.Handler]
    references: list[ref[logging.Handler]]

    @classmethod
    def copied(cls) -> Self:
        """Return copies of what is in place."""
        import logging

        return cls(logging._handlers.copy(), logging._handlerList[:])  # type: ignore[attr-defined]

    def exchange(self) -> LogHandlers:
        """Put these in place; returns the previous ones."""
        import logging

        module: Any = logging
        before = LogHandlers(module._handlers, module._handlerList)
        module._handlers, module._handlerList = self
        return before


def start_method() -> Any:
    """Return the choice of ``multiprocessing.set_start_method``; None if there is none yet."""
    context = sys.modules.get("multiprocessing.context")
    return context._default_context._actual_context if context is not None else None


def set_start_method(chosen: Any) -> None:
    """Restore a result of ``start_method``."""
    context = sys.modules.get("multiprocessing.context")
    if context is not None:
        context._default_context._actual_context = chosen


def multiprocessing_config() -> dict[str, Any]:
    """Return what ``multiprocessing`` keeps for this process, such as its directory for temporary files."""
    from multiprocessing.process import current_process

    config: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]
    return config


def check() -> list[str]:
    """Return missing or changed private names of this Python."""
    return problems(NAMES) + _fork_exec_problems()


def _fork_exec_problems() -> list[str]:
    """Check the position of subprocess's preexec_fn in its source, as builtin code has no signature."""
    import ast
    import inspect
    import subprocess

    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(subprocess)))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_fork_exec"
    ]
    if calls and all(ast.unparse(call.args[PREEXEC_ARGUMENT]) == "preexec_fn" for call in calls):
        return []
    return ["subprocess passes preexec_fn to _posixsubprocess.fork_exec elsewhere than it did"]
