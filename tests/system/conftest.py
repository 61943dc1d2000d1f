from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_server import TorchServe
from made_once import folder_of_run, made_once
from model_archiver.model_archiver_config import ModelArchiverConfig
from stock_archiver import wrap
from waiting import wait_for

from interpool.archiver_ext.packing.pack import pack
from interpool.handler import interpool_handler

HERE = Path(__file__).parent
HANDLER = Path(str(interpool_handler.__file__))

Pack = Callable[..., Path]
Mar = Callable[..., str]


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
        wrap(
            ModelArchiverConfig(
                model_name=name,
                handler=str(handler),
                version=version,
                serialized_file=str(package),
                export_path=str(server.store),
                archive_format=archive_format,
                extra_files=extra_files,
                config_file=str(config_file) if config_file else None,
                force=True,
            )
        )
        return name if archive_format == "no-archive" else f"{name}.mar"

    return archive


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServe]:
    """One TorchServe with the overlay for a module's tests."""
    with TorchServe() as running:
        yield running
