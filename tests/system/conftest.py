from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from local_server import TorchServe
from made_once import folder_of_run, made_once
from pid_namespaces import in_another_pid_namespace
from stock_archiver import wrap
from waiting import wait_for

from interpool.archiver_ext.packing.pack import pack
from interpool.handler import interpool_handler

HERE = Path(__file__).parent
HANDLER = Path(str(interpool_handler.__file__))

Pack = Callable[..., Path]
Mar = Callable[..., str]


# What a server's start, and a host's, removes.
_CLEAN = """
import sys
from pathlib import Path
from interpool.handler.frontend.leftovers import remove_leftovers
from interpool.handler.host.runtime_directory import remove_stale
for path in remove_leftovers(Path(sys.argv[1])):
    print(path)
remove_stale(Path(sys.argv[2]))
"""


def cleaned_by_another_container(server: TorchServe) -> str:
    """What a server that starts in a container, with the same directories, takes for left over."""
    return in_another_pid_namespace(_CLEAN, server.tmp, server.runtime)


def wait_for_log(server: TorchServe, words: str) -> None:
    """Wait for words in the model log, which TorchServe writes in the background."""
    wait_for(lambda: words in server.model_log(), f"{words!r} in the model log")


@pytest.fixture(scope="session")
def packed(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs ``MODULE:NAME``, of ``samples`` by default, once per test run; gives the package's path."""
    packages = folder_of_run(pytestconfig, tmp_path_factory, "packages")

    def build(name: str, module: str = "samples") -> Path:
        output = packages / module / f"{name}.ptpkg"
        return made_once(output, lambda: pack(f"{module}:{name}", output, root=HERE))

    return build


@pytest.fixture(scope="session")
def mar(packed: Pack) -> Mar:
    """Makes a .mar in a server's model store with the stock archiver; gives its file name."""

    def archive(
        server: TorchServe,
        name: str,
        model: str | Path,
        *,
        config: str = "",
        version: str = "1.0",
        handler: Path = HANDLER,
        archive_format: str = "default",
        extra_files: str | None = None,
    ) -> str:
        package = packed(model) if isinstance(model, str) else model
        config_file = None
        if config:
            config_file = server.root / f"{name}.yaml"
            config_file.write_text(config)
        made = wrap(
            name,
            handler,
            server.store,
            version,
            serialized_file=package,
            archive_format=archive_format,
            extra_files=extra_files,
            config_file=config_file,
        )
        return name if archive_format == "no-archive" else made

    return archive


def make_ordinary(
    server: TorchServe,
    name: str,
    files: Mapping[str, str | Path],
    *,
    version: str = "1.0",
    model_file: str = "",
    serialized_file: str = "",
) -> str:
    """Make an ordinary .mar in a server's model store with the stock archiver; gives its file name.

    Args:
        server: whose store it is.
        name: the model's.
        files: texts, and files to copy, by name; one is ``handler.py``.
        version: the model's.
        model_file: which of the files has the model's class.
        serialized_file: which of them has the weights.
    """
    folder = server.root / f"{name}-{version}"
    folder.mkdir(exist_ok=True)
    for file, content in files.items():
        if isinstance(content, str):
            (folder / file).write_text(textwrap.dedent(content))
        else:
            (folder / file).write_bytes(content.read_bytes())
    extra = [str(folder / each) for each in files if each not in ("handler.py", model_file, serialized_file)]
    return wrap(
        name,
        folder / "handler.py",
        server.store,
        version,
        model_file=model_file and folder / model_file,
        serialized_file=serialized_file and folder / serialized_file,
        extra_files=",".join(extra),
    )


@pytest.fixture(scope="session")
def shared_server() -> Iterator[TorchServe]:
    """One TorchServe with the overlay for all modules of this process that need no other settings."""
    environment = {
        "INTERPOOL_IDLE_EXIT_S": "600",  # modules that use it need not follow one another
        "PIP_NO_INDEX": "1",
    }
    with TorchServe(environment=environment, properties={"install_py_dep_per_model": "true"}) as running:
        yield running


@pytest.fixture(scope="module")
def server(shared_server: TorchServe) -> Iterator[TorchServe]:
    """The shared TorchServe: a module finds no model there, one host, and empty logs, and leaves them so."""
    shared_server.begin_logs()
    yield shared_server
    for model in shared_server.models():
        shared_server.unregister(model)
    for name, pool in shared_server.pools().items():
        if name != "default":
            psutil.Process(pool["pid"]).terminate()
    wait_for(
        lambda: not shared_server.shims() and len(shared_server.hosts()) < 2, "the workers' end", pause=0.1
    )
