"""What docs/troubleshooting.md says that an archive cannot hold: when one of these passes, the line goes."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from archives import manifest_of

from interpool.archiver_ext.packing.decide.project_data import save_data
from interpool.archiver_ext.packing.decide.rules import Rules
from interpool.archiver_ext.packing.write.exporter import HermeticExporter
from interpool.native.archive.importer import HermeticImporter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from test_archiver_ext.conftest import Write

PROJECT = {
    "mypkg/__init__.py": "",
    "mypkg/vocab.py": """
        class Vocab:
            size = 3
    """,
    "mypkg/layers.py": """
        import torch
        from torch.nn.utils import parametrizations, parametrize

        def with_parametrization():
            return parametrizations.weight_norm(torch.nn.Linear(2, 2))

        def without_any_more():
            layer = with_parametrization()
            parametrize.remove_parametrizations(layer, "weight")
            layer._load_state_dict_pre_hooks.clear()
            return layer
    """,
    "mypkg/m.py": """
        import importlib, multiprocessing, pickle, pkgutil, sys
        from pathlib import Path
        import torch
        from mypkg import vocab

        HERE = Path(__file__).parent

        class Tries:
            def __call__(self, what):
                return getattr(self, what)()

            def own_pickle(self):
                with open(HERE / "own.pkl", "rb") as file:
                    return pickle.load(file).size

            def own_checkpoint(self):
                return torch.load(HERE / "own.pt", weights_only=False).size

            def working_directory(self):
                return open("mypkg/own.pkl").close()

            def plain_name(self):
                return sys.modules["mypkg.vocab"]

            def library_by_name(self):
                return pkgutil.resolve_name("mypkg.vocab:Vocab")

            def reload(self):
                return importlib.reload(vocab)
    """,
}


@pytest.fixture
def root(importable: Write) -> Path:
    return importable(PROJECT)


@pytest.fixture
def tries(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The model, out of its archive, where the project is not."""
    from mypkg.vocab import Vocab  # type: ignore[import-not-found]

    with open(root / "mypkg" / "own.pkl", "wb") as file:
        pickle.dump(Vocab(), file)
    torch.save(Vocab(), root / "mypkg" / "own.pt")
    from mypkg.m import Tries  # type: ignore[import-not-found]

    path = tmp_path / "archive.ptpkg"
    exporter = HermeticExporter(path, Rules(root))
    exporter.save_pickle("model", "model.pkl", Tries())
    names = save_data(exporter, ["mypkg/own.pkl", "mypkg/own.pt"])
    exporter.close()
    manifest = manifest_of({name: (root / name).read_bytes() for name in names}, data=sorted(names))
    monkeypatch.chdir("/")
    sys.path.remove(str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] == "mypkg"]:
        del sys.modules[name]  # not monkeypatch's, which would put it back for the tests that follow
    reader = torch._C.PyTorchFileReader(str(path))
    importer = HermeticImporter(reader, str(path), manifest)
    yield importer.load_pickle("model", "model.pkl")
    importer.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("own_pickle", KeyError),
        ("own_checkpoint", ModuleNotFoundError),
        ("working_directory", FileNotFoundError),
        ("plain_name", KeyError),
        ("library_by_name", ModuleNotFoundError),
        ("reload", ImportError),
    ],
)
def test_archived_code_gets_an_error_for_what_it_cannot_do(
    tries: Any, what: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        tries(what)


def test_parametrized_layer_is_refused_until_the_parametrization_is_removed(
    root: Path, tmp_path: Path
) -> None:
    from mypkg import layers  # type: ignore[import-not-found]

    exporter = HermeticExporter(tmp_path / "archive.ptpkg", Rules(root))
    with pytest.raises(RuntimeError, match="parametrized modules is only supported"):
        exporter.save_pickle("model", "with.pkl", layers.with_parametrization())
    exporter.save_pickle("model", "without.pkl", layers.without_any_more())
    exporter.close()
