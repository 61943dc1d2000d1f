"""Which ordinary archives cannot share a process with other models, as far as that shows before they run.

An ordinary archive's handler takes a process of its own for granted. This module searches its manifest,
its configuration and its handler file for what would fail here, or disturb other models. All else shows
when the pool tries to load it, or at the first call that asks for it. Such a model is
served by TorchServe's own workers, and its model log says why.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interpool.handler.config import model_configuration, model_manifest


class Obstacle(NamedTuple):
    """Why a model needs processes of its own, and what to change so that it does not."""

    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.why}. {self.remedy}"


_SPAWN = "Use subprocess, or multiprocessing.get_context('spawn')"
_SIGNALS = "Leave signals to the server: stop workers through TorchServe's management API"
_FORKS = "it forks, and a forked child would have all models' locks as they happen to be"
# A later one starts a process that forks in its place: as good as spawn in a pool.
_FORKS_BY_DEFAULT = sys.version_info < (3, 14)
_CALLS = {
    **dict.fromkeys(("os.fork", "os.forkpty", "pty.fork"), Obstacle(_FORKS, _SPAWN)),
    **dict.fromkeys(
        (
            "multiprocessing.Process",
            "multiprocessing.Pool",
            "multiprocessing.Manager",
            "multiprocessing.pool.Pool",
            "torch.multiprocessing.Process",
            "torch.multiprocessing.Pool",
            "torch.multiprocessing.Manager",
            "concurrent.futures.ProcessPoolExecutor",
        )
        if _FORKS_BY_DEFAULT
        else (),
        Obstacle("multiprocessing forks on Linux by default: " + _FORKS, _SPAWN),
    ),
    **dict.fromkeys(
        ("concurrent.futures.InterpreterPoolExecutor", "concurrent.interpreters.create"),
        Obstacle("it makes interpreters of its own, without private copies of libraries", "Use threads"),
    ),
    **dict.fromkeys(
        ("signal.signal", "signal.alarm", "signal.setitimer", "signal.set_wakeup_fd"),
        Obstacle("it handles signals, which belong to the whole process", _SIGNALS),
    ),
    **dict.fromkeys(
        ("torch.distributed.init_process_group", "deepspeed.init_inference", "deepspeed.initialize"),
        Obstacle("a process can be in one torch.distributed group only", "Serve it on a server of its own"),
    ),
    **dict.fromkeys(
        ("locale.setlocale", "time.tzset", "os.setuid", "os.setgid", "resource.setrlimit"),
        Obstacle("it changes a setting of the whole process", "Set it for the server instead"),
    ),
    "torch.set_num_interop_threads": Obstacle(
        "the number of inter-op threads can be set once in a process", "Leave that call out"
    ),
    "os._exit": Obstacle("it ends its process", "Raise an exception instead"),
}
# Ways to start processes that fork nothing of a pool's.
_STARTS_ANEW = ("spawn", "forkserver")
_CONTEXTS = ("mp_context", "multiprocessing_context", "context")  # arguments
_LARGEST_SOURCE = 1 << 22  # bytes; a larger handler shows what it does when it is loaded
_GET_CONTEXT = ("multiprocessing.get_context", "torch.multiprocessing.get_context")
_SPAWNS = ("multiprocessing.set_start_method", "torch.multiprocessing.set_start_method")


def obstacles(model_dir: str | Path) -> list[Obstacle]:
    """What keeps the model extracted in ``model_dir`` out of a pool, as far as it shows without running it.

    Raises:
        SettingsError: its manifest or its configuration cannot be read.
    """
    directory = Path(model_dir)
    manifest = model_manifest(directory)
    return [
        *_of_configuration(model_configuration(directory)),
        *_of_handler(directory, str(manifest.get("handler") or "")),
    ]


def _of_configuration(configuration: Mapping[str, Any]) -> Iterator[Obstacle]:
    own = configuration.get("interpool")
    if isinstance(own, dict) and own.get("ordinary") == "stock":
        yield Obstacle("its settings say `ordinary: stock`", "Leave that out to have it in the pool")
    if _is_set(configuration, "asyncCommunication"):
        yield Obstacle(
            "asyncCommunication needs a process of its own", "Remove it from the model's configuration"
        )
    parallel = configuration.get("parallelType")
    if parallel and str(parallel).lower() != "none":
        yield Obstacle(f"parallelType: {parallel} starts one process for each of its parts", "Remove it")
    if _is_set(configuration, "useVenv"):
        yield Obstacle(
            "useVenv gives it a Python environment of its own",
            "Install what it needs for the server, or with install_py_dep_per_model",
        )


def _is_set(configuration: Mapping[str, Any], name: str) -> bool:
    return str(configuration.get(name, "")).lower() == "true"


def _of_handler(directory: Path, handler: str) -> list[Obstacle]:
    """What the handler file asks for anywhere: a call that is never made costs a worker process."""
    name = handler.partition(":")[0]
    file = directory / (name if name.endswith(".py") else f"{name}.py")
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST_SOURCE:  # reading a pipe would not end
            return []
        tree = ast.parse(file.read_bytes())
        names = _imported(tree)
        called = list(_calls(tree, names))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        # One of TorchServe's own; what cannot be parsed, or is nested too deep, shows when it is loaded.
        return []
    found = {}
    spawns = any(call in _SPAWNS for call, _ in called)
    contexts = _spawning_contexts(tree, names)
    for call, node in called:
        obstacle = _CALLS.get(call)
        if call.endswith("DataLoader") and call.startswith("torch.") and _has_workers(node):
            obstacle = Obstacle("a DataLoader with num_workers forks", "Load data with num_workers=0")
        if _is_given_spawn(node, contexts, names):
            continue
        if obstacle is not None and not (spawns and "multiprocessing" in call):
            text = f"{file.name}:{node.lineno} calls {call}: {obstacle.why}"
            found[call] = Obstacle(text, obstacle.remedy)
    return list(found.values())


def _imported(tree: ast.Module) -> dict[str, str]:
    """Full names of what import statements bring, by the names they are given."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _calls(tree: ast.Module, names: Mapping[str, str]) -> Iterator[tuple[str, ast.Call]]:
    """Calls of what was imported, by full names; those of a script's main part are left out."""
    main = {
        inner
        for node in tree.body
        if isinstance(node, ast.If) and "__main__" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in main:
            name = _full_name(node.func, names)
            if name:
                yield name, node


def _full_name(function: ast.expr, names: Mapping[str, str]) -> str:
    """What was imported and is called, by its full name; "" for anything else."""
    parts = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if not (isinstance(function, ast.Name) and function.id in names):
        return ""
    return ".".join([names[function.id], *reversed(parts)])


def _spawning_contexts(tree: ast.Module, names: Mapping[str, str]) -> set[str]:
    """What the file calls ``multiprocessing.get_context("spawn")``, and other contexts that do not fork.

    A name that something else is given to, anywhere, is none of them.
    """
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                given.setdefault(ast.unparse(target), []).append(node.value)
    return {name for name, values in given.items() if all(_is_spawn(value, set(), names) for value in values)}


def _is_spawn(value: ast.expr, contexts: Collection[str], names: Mapping[str, str]) -> bool:
    if isinstance(value, ast.Constant):
        return value.value in _STARTS_ANEW
    if isinstance(value, ast.Call):
        asked = [*value.args, *(each.value for each in value.keywords)]
        return _full_name(value.func, names) in _GET_CONTEXT and any(
            isinstance(each, ast.Constant) and each.value in _STARTS_ANEW for each in asked
        )
    return ast.unparse(value) in contexts


def _is_given_spawn(call: ast.Call, contexts: Collection[str], names: Mapping[str, str]) -> bool:
    """Whether a pool or a loader is given a way to start its processes anew."""
    given = [each for each in call.args if not isinstance(each, ast.Constant)]
    given += [each.value for each in call.keywords if each.arg in _CONTEXTS]
    return any(_is_spawn(each, contexts, names) for each in given)


def _has_workers(call: ast.Call) -> bool:
    return _FORKS_BY_DEFAULT and any(
        keyword.arg == "num_workers"
        and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
        for keyword in call.keywords
    )
