"""CPython's private names that interpool relies on: the one place to look at for its next release.

``inside/loader.py`` and ``handler/frontend/shim.py`` import theirs themselves: one runs before any import
is safe, the other stands alone. What the C++ code needs of CPython's layouts is in
``native/cpp/upstream``.
"""

from __future__ import annotations

import _compat_pickle
import importlib._bootstrap
import linecache
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from interpool.native.upstream.private_names import PrivateName, problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from zipfile import ZipFile

PREEXEC_ARGUMENT = -1 if sys.version_info >= (3, 14) else -2
"""Where subprocess puts ``preexec_fn`` among the arguments of ``_posixsubprocess.fork_exec``."""

_UTF8_NAME = 1 << 11

_ENVIRON: Any = os.environ  # a model may have the name mean something else

RENAMED_GLOBALS = _compat_pickle.NAME_MAPPING
"""What module and name in a pickle of Python 2 are called now."""

RENAMED_MODULES = _compat_pickle.IMPORT_MAPPING
"""What a module in a pickle of Python 2 is called now."""

ModuleLock: Any = importlib._bootstrap._ModuleLockManager  # type: ignore[attr-defined]
"""A context manager: the lock under which Python imports the module of that name."""

IMPORTLIB_FILE = "<frozen importlib._bootstrap>"
"""What the frames of importlib's functions that import statements call have as their file."""


def _unpickler(name: str, why: str, *parameters: str) -> PrivateName:
    return PrivateName(f"pickle:_Unpickler.{name}", why, ("self", *parameters))


NAMES = (
    # What private interpreters replace.
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
    PrivateName(
        "_frozen_importlib:_find_and_load",
        "inside/lean_imports.py: asks a module for its spec, and this whether it is being imported; "
        "cpp/upstream/cpython.h: a thread in it is importing",
        mentions=("__spec__", "_initializing"),
    ),
    PrivateName("_imp:create_dynamic", "inside/loader.py: loads an extension module"),
    PrivateName("ctypes:_dlopen", "inside/bootstrap.py opens a private copy instead"),
    PrivateName(
        "ctypes:CDLL._load_library" if sys.version_info >= (3, 14) else "ctypes:CDLL.__init__",
        "inside/bootstrap.py: it asks the module for _dlopen",
        mentions=("_dlopen",),
    ),
    PrivateName("_ctypes:dlopen", "upstream/torch_symbols.py: the library that looks torch's symbols up"),
    PrivateName("_posixsubprocess:fork_exec", "inside/bootstrap.py refuses a preexec_fn"),
    PrivateName(
        "multiprocessing.context:_default_context._actual_context",
        "handler/backend/process_view.py: each model chooses how processes start",
    ),
    *(
        [PrivateName("_interpreters:create", "inside/bootstrap.py refuses subinterpreters")]
        if sys.version_info >= (3, 14)
        else []
    ),
    PrivateName(
        "os:_Environ.__setitem__",
        "inside/inductor.py: os.environ asks the module for putenv",
        mentions=("putenv",),
    ),
    PrivateName(
        "os:_Environ.__delitem__",
        "inside/process_guards.py: likewise for unsetenv",
        mentions=("unsetenv",),
    ),
    PrivateName("os:_Environ.__iter__", "the view of each model has its own variables", mentions=("_data",)),
    PrivateName("locale:_setlocale", "inside/process_guards.py: the process's locale is the host's"),
    PrivateName("warnings:_processoptions", "handler/backend/service.py heeds PYTHONWARNINGS", ("args",)),
    PrivateName("warnings:_filters_mutated", "likewise its own filters of warnings"),
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
    PrivateName("linecache:cache", "the sources of a model that is gone are dropped from it"),
    # Pickles.
    PrivateName("_compat_pickle:NAME_MAPPING", "archive/pickle_policy.py: names in pickles of Python 2"),
    PrivateName("_compat_pickle:IMPORT_MAPPING", "archive/pickle_policy.py: modules in those pickles"),
    PrivateName("pickle:_Unpickler.dispatch", "archive/unpickler.py replaces steps by opcode"),
    PrivateName(
        "pickle:_Unpickler.load",
        "archive/unpickler.py looks at the stack between steps, and reads like a step",
        ("self",),
        mentions=("stack", "append", "read", "proto", "metastack"),
    ),
    *(
        _unpickler(f"load_{step}", "archive/unpickler.py checks what the step is about to do, or has made")
        for step in (
            "binpersid", "build", "bytearray8", "frozenset", "newobj", "newobj_ex", "persid", "reduce",
            "tuple", "tuple1", "tuple2", "tuple3",
        )
    ),
    _unpickler("_instantiate", "the opcodes INST and OBJ, checked and followed like REDUCE", "klass", "args"),
    # Frames of the pickler in Python, from which packing tells what could not be pickled.
    PrivateName("pickle:_Pickler.dump", "packing/pickling.py", mentions=("obj",)),
    PrivateName("pickle:_Pickler.save", "packing/pickling.py: the innermost part", mentions=("obj",)),
    PrivateName("pickle:_Pickler._batch_setitems", "packing/pickling.py: the way to it", mentions=("k",)),
    # What is appended to archives.
    PrivateName(
        "zipfile:ZipInfo._encodeFilenameFlags",
        "archiver_ext/appending.py: a member's flags as they were read",
        ("self",),
        mentions=("flag_bits",),
    ),
    # Threads by their names, as cpp/slot/stacks.cc finds them: cpp/upstream/cpython.h has these names.
    PrivateName(
        "threading:_active", "cpp/upstream/cpython.h: the threads, by their ident; inside/traces.py passes by"
    ),
    PrivateName("typing:_overload_registry", "inside/traces.py passes by: each function by its name"),
    PrivateName(
        "concurrent.futures.thread:_threads_queues", "inside/traces.py passes by: what executors are to do"
    ),
    PrivateName(
        "threading:Thread.__init__", "cpp/upstream/cpython.h: a thread's name", mentions=("_name",)
    ),
    PrivateName("threading:_DummyThread", "cpp/upstream/cpython.h: a thread that threading did not start"),
    # Requests, as cpp/slot/otf_messages.cc decodes them: cpp/upstream/cpython_types.h has these names.
    PrivateName("os:_Environ.__init__", "cpp/upstream/cpython_types.h: variables", mentions=("_data",)),
    PrivateName("json:_default_decoder", "cpp/upstream/cpython_types.h: decodes; handler/backend/codec.py"),
    PrivateName(
        "json:JSONDecoder.raw_decode",
        "cpp/upstream/cpython_types.h: what the decoder asks; handler/backend/codec.py sees it replaced",
        mentions=("scan_once",),
    ),
    # The small process beside each worker.
    PrivateName("_socket:socket", "handler/frontend/shim.py saves the memory that socket takes"),
)  # fmt: skip
"""All of them, in the order of what they are for."""


def keep_name_flags(file: ZipFile) -> None:
    """Have the members of an open zip keep their flag for names in UTF-8 when its directory is written.

    From 3.14 on Python clears it there, where a name is ASCII, and leaves it in the members' own headers.
    """
    from zipfile import ZipInfo

    class AsRead(ZipInfo):
        __slots__ = ()

        def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802  Python's own name
            name, flags = super()._encodeFilenameFlags()  # type: ignore[misc]
            return name, flags | (self.flag_bits & _UTF8_NAME)

    for info in file.infolist():
        info.__class__ = AsRead


def forget_source_lines(prefixes: tuple[str, ...]) -> None:
    """Have linecache drop the files whose names begin so; it holds on to their modules' loaders."""
    for file in [file for file in linecache.cache if file.startswith(prefixes)]:
        del linecache.cache[file]


def run_exit_functions() -> None:
    """Call the functions that ``atexit`` knows, as a Python does first when it ends normally."""
    import atexit

    atexit._run_exitfuncs()


def replace_dlopen(make: Callable[[Callable[..., int]], Callable[..., int]]) -> None:
    """Have ctypes open libraries by what ``make`` makes of its own function."""
    import ctypes

    ctypes._dlopen = make(ctypes._dlopen)  # type: ignore[attr-defined]


def replace_fork_exec(make: Callable[[Callable[..., int]], Callable[..., int]]) -> None:
    """Have programs started by what ``make`` makes of the stock function. Before subprocess is imported."""
    import _posixsubprocess

    _posixsubprocess.fork_exec = make(_posixsubprocess.fork_exec)


def replace_create_interpreter(stand_in: Callable[..., NoReturn]) -> None:
    """Have subinterpreters made by ``stand_in``. Until 3.13 only CPython's own tests make any."""
    if sys.version_info >= (3, 14):
        import _interpreters

        _interpreters.create = stand_in


def replace_setlocale(make: Callable[[Callable[..., str], type[Exception]], Callable[..., str]]) -> None:
    """Have ``locale.setlocale`` set the process's locale by what ``make`` makes of the stock function.

    Args:
        make: gets that function, and ``locale.Error``.
    """
    import _locale

    _locale.setlocale = make(_locale.setlocale, _locale.Error)  # type: ignore[attr-defined]
    # locale.py takes it by name, and others take it from there; it may not have been imported yet.
    locale = sys.modules.get("locale")
    contents = vars(ModuleType)["__dict__"].__get__(locale) if locale is not None else {}
    if "_setlocale" in contents:
        contents["_setlocale"] = _locale.setlocale


def replace_environ(variables: dict[bytes, bytes]) -> None:
    """Have Python's ``os.environ`` hold these, as ``environ_data`` gave them; the process's own stay."""
    _ENVIRON._data.clear()
    _ENVIRON._data.update(variables)


def environ_data() -> dict[bytes, bytes]:
    """A copy of what Python's ``os.environ`` holds, whatever goes by that name now."""
    return dict(_ENVIRON._data)


def kept_for_callers() -> list[object]:
    """What Python's library keeps of functions for their owners alone: threads, their work, overloads."""
    import threading
    import typing

    executors = sys.modules.get("concurrent.futures.thread")
    return [
        threading._active,  # type: ignore[attr-defined]
        typing._overload_registry,  # type: ignore[attr-defined]
        getattr(executors, "_threads_queues", None),
    ]


def filter_warnings(options: str) -> None:
    """Filter warnings as PYTHONWARNINGS asks for."""
    import warnings

    warnings._processoptions([option for option in options.split(",") if option])  # type: ignore[attr-defined]


def replace_warnings_filters(filters: list[Any]) -> None:
    """Have warnings filtered by these: C code holds on to the list itself."""
    import warnings

    if warnings.filters != filters:
        warnings.filters[:] = filters  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def event_loop_policies() -> tuple[Any, Callable[[], Any], Callable[[Any], None]]:
    """The class of asyncio's own policy of event loops, and what gets and sets the one in place.

    From 3.14 on the public ones warn, which raises where a model has made errors of warnings.
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


def start_method() -> Any:
    """What ``multiprocessing.set_start_method`` has chosen; None as long as it has not."""
    context = sys.modules.get("multiprocessing.context")
    return context._default_context._actual_context if context is not None else None


def set_start_method(chosen: Any) -> None:
    """Have it be that, or not chosen yet; from ``start_method``."""
    context = sys.modules.get("multiprocessing.context")
    if context is not None:
        context._default_context._actual_context = chosen


def check() -> list[str]:
    """What is gone or changed in this Python, of all that we rely on."""
    return problems(NAMES) + _fork_exec_problems()


def _fork_exec_problems() -> list[str]:
    """Whether subprocess hands the preexec_fn on where we look for it: builtin code has no parameters."""
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
