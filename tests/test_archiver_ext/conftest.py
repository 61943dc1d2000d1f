from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_once import folder_of_run, made_once
from test_archiver_ext.shop import write_shop

from interpool.archiver_ext import pack
from interpool.archiver_ext.packing.decide import distributions

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def project(tmp_path: Path) -> Write:
    """Writes a user's project, ``{path: source}``, and gives its root."""
    root = tmp_path / "project"

    def write(files: dict[str, str]) -> Path:
        for name, source in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source), encoding="utf-8")
        return root

    return write


@pytest.fixture
def importable(project: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Like ``project``, for a project that this process imports itself."""
    tops: set[str] = set()

    def write(files: dict[str, str]) -> Path:
        root = project(files)
        tops.update(name.partition("/")[0].removesuffix(".py") for name in files)
        monkeypatch.syspath_prepend(root)
        return root

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]


@pytest.fixture
def fresh_metadata() -> Iterator[None]:
    """What is installed is looked up once; here more is, for a while."""
    kept = [each for each in vars(distributions).values() if hasattr(each, "cache_clear")]

    def forget() -> None:
        for each in kept:
            each.cache_clear()

    forget()
    yield
    forget()


@pytest.fixture(scope="session")
def packed_shop(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the project in ``shop``, for tests that only read it."""
    folder = folder_of_run(pytestconfig, tmp_path_factory, "shop")
    output = folder / "shop.ptpkg"
    return made_once(output, lambda: pack("shop.factory:build", output, root=write_shop(folder / "src")))
