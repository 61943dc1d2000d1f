"""Everything that an archive may hold, packed, and run in two interpreters at once."""

from __future__ import annotations

import io
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import torch
from interpool_testing import pool_of
from paths import EXTENSIONS
from test_native.support.compile import build
from test_native.support.interpool_testing import together

from interpool.archiver_ext import PackReport, pack
from interpool.native import InterpreterManager

STABLE = EXTENSIONS / "stable.cpp"

# Python as people write it, in one package.
PYTHON = {
    "mypkg/__init__.py": """
        REGISTRY = {}

        def register(name):
            def wrap(found):
                REGISTRY[name] = found
                return found
            return wrap

        from mypkg import parts  # registers
        from .records import Colour as ReExported
    """,
    "mypkg/parts.py": """
        from mypkg import register

        @register("double")
        def double(x):
            return 2 * x
    """,
    "mypkg/records.py": """
        from __future__ import annotations

        import enum
        from collections import namedtuple
        from dataclasses import dataclass, field
        from typing import TYPE_CHECKING, NamedTuple

        if TYPE_CHECKING:
            from nowhere import Missing

        class Colour(enum.Enum):
            RED = 1

        Point = namedtuple("Point", "x y")

        class Named(NamedTuple):
            name: str

        @dataclass(frozen=True)
        class Settings:
            size: int
            colour: Colour = Colour.RED
            others: list[Missing] = field(default_factory=list)

        class Reduced:
            def __init__(self, value):
                self.value, self.calls = value, 0

            def __reduce__(self):
                return Reduced, (self.value + 1,)
    """,
    "mypkg/starred.py": """
        __all__ = ["starred"]
        starred = "by a star"
        hidden = "not by a star"
    """,
    "mypkg/circle_a.py": """
        from mypkg import circle_b
        NAME = "a"
        def both():
            return NAME + circle_b.NAME
    """,
    "mypkg/circle_b.py": """
        from mypkg import circle_a
        NAME = "b"
        def both():
            return circle_a.NAME + NAME
    """,
    "mypkg/fallback.py": """
        try:
            import no_such_library
        except ImportError:
            no_such_library = None
        import sys
        if sys.version_info >= (3, 11):
            from tomllib import loads
        else:
            from tomli import loads
        USED = "fallback" if no_such_library is None else "library"
        NUMBER = loads("number = 7")["number"]
    """,
    "space/without_init/module.py": "WHERE = __name__.partition('.')[2]\n",
    "colorsys.py": "MINE = True\n",
    "mypkg/python.py": """
        import colorsys
        import functools

        import space.without_init.module
        from mypkg import REGISTRY, ReExported
        from mypkg.starred import *
        from . import circle_a
        from .circle_b import both
        from .fallback import NUMBER, USED
        from .files.model import read_all
        from .records import Colour, Named, Point, Reduced, Settings

        class Scaler:
            def __init__(self, factor):
                self.factor = factor

            def apply(self, x, offset):
                return self.factor * x + offset

        class Everything:
            def __init__(self):
                self.partial = functools.partial(Scaler(3).apply, offset=1)
                self.held = {
                    "colour": Colour.RED, "point": Point(1, 2), "named": Named("n"),
                    "settings": Settings(3), "reduced": Reduced(4),
                }

            def __call__(self, part, x):
                return self.python(x) if part == "python" else read_all(x)

            def python(self, x):
                held = self.held
                return {
                    "registered": REGISTRY["double"](x).tolist(),
                    "enum": held["colour"] is Colour.RED is ReExported.RED,
                    "tuples": [type(held["point"]) is Point, held["named"].name],
                    "dataclass": held["settings"] == Settings(3, Colour.RED),
                    "reduced": [held["reduced"].value, held["reduced"].calls],
                    "star": [starred, "hidden" in globals()],
                    "circle": [circle_a.both(), both()],
                    "conditional": [USED, NUMBER],
                    "namespace": space.without_init.module.WHERE,
                    "standard": colorsys.MINE,
                    "partial": self.partial(x).tolist(),
                }

        def everything():
            return Everything()
    """,
}

FILES = {
    "mypkg/files/__init__.py": "",
    "mypkg/files/labels.txt": "cat\ndog\n",
    "mypkg/files/model.py": """
        import ctypes
        import importlib.resources
        import pkgutil
        from pathlib import Path

        import numpy as np
        import sentencepiece
        import torch
        from importlib.resources import files
        from tokenizers import Tokenizer

        HERE = Path(__file__).parent
        torch.ops.load_library(str(HERE / "native" / "libcarried.so"))
        LABELS = files(__package__).joinpath("labels.txt").read_text().split()

        def read_all(x):
            words = sentencepiece.SentencePieceProcessor(model_file=str(HERE / "pieces.model"))
            tokens = Tokenizer.from_file(str(HERE / "tokenizer.json"))
            with open(HERE.parent.parent / "top.bin", "rb") as file:
                top = file.read()
            return {
                "operator": torch.ops.interpool_carried.shifted(x).tolist(),
                "ctypes": bool(ctypes.CDLL(str(HERE / "native" / "libcarried.so"))._handle),
                "labels": LABELS,
                "binary": list(pkgutil.get_data("mypkg.files", "table.bin")),
                "weights": torch.load(HERE / "table.pt").tolist(),
                "array": np.fromfile(HERE / "table.bin", dtype=np.uint8).tolist(),
                "pieces": words.decode(words.encode("hello world")),
                "tokens": tokens.encode("world hello").ids,
                "top": list(top),
            }
    """,
}

MODULES = {
    "mypkg/nets.py": """
        import torch

        class Inner(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(3, 2)

            def forward(self, x):
                if x.sum() > 0:  # which no trace would keep
                    return torch.relu(self.linear(x))
                return self.linear(x)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scripted = torch.jit.script(Inner())
                self.plain = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
                self.traced = torch.fx.symbolic_trace(self.plain)

            def forward(self, x):
                return torch.stack([self.scripted(x), self.plain(x), self.traced(x)])

        def net():
            torch.manual_seed(0)
            return Net().eval()
    """,
}

SPECS = {
    "module": "mypkg.nets:net",
    "callable": "mypkg.python:everything",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("entry-points")
    for name, source in {**PYTHON, **FILES, **MODULES}.items():
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
    _write_data(root / "src")
    return root


def _write_data(source: Path) -> None:
    files = source / "mypkg" / "files"
    (source / "top.bin").write_bytes(b"\x01\x02")
    (files / "table.bin").write_bytes(bytes(range(4)))
    torch.save(torch.arange(3), files / "table.pt")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world"] * 10),
        model_writer=model,
        vocab_size=12,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    (files / "pieces.model").write_bytes(model.getvalue())
    words = tokenizers.models.WordLevel({"hello": 0, "world": 1, "?": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(files / "tokenizer.json"))
    library = build(STABLE, "libcarried.so", with_torch=True, options=("-DNAMESPACE=interpool_carried",))
    (files / "native").mkdir()
    (files / "native" / library.name).write_bytes(library.read_bytes())


@pytest.fixture(scope="module")
def reports(root: Path) -> dict[str, PackReport]:
    def one(name: str) -> PackReport:
        data = [] if name == "module" else ["mypkg/files/**", "top.bin"]
        return pack(SPECS[name], root / f"{name}.ptpkg", root=root / "src", data=data)

    with ThreadPoolExecutor(2) as threads:
        return dict(zip(SPECS, threads.map(one, SPECS), strict=True))


pool = pool_of(2)


def answers(pool: InterpreterManager, report: PackReport, *args: Any) -> Any:
    """What the entry says, the same in both interpreters at once."""
    model = pool.load_package(report.output).load_entry()
    sessions = [model.acquire_session(timeout=60) for _ in range(2)]
    assert len({session.interpreter_id for session in sessions}) == 2
    try:
        first, second = together([lambda each=each: each.self(*args).to_value() for each in sessions])  # type: ignore[misc]
    finally:
        for session in sessions:
            session.close()
    assert str(first) == str(second)
    return first


@pytest.mark.long
def test_modules_that_pack_themselves_give_equal_bytes(root: Path, reports: dict[str, PackReport]) -> None:
    again = pack(SPECS["module"], root / "again.ptpkg", root=root / "src")
    assert again.output.read_bytes() == reports["module"].output.read_bytes()


@pytest.mark.long
def test_all_ways_of_python_to_define_a_model_survive_packing(
    pool: InterpreterManager, reports: dict[str, PackReport]
) -> None:
    assert reports["callable"].kind == "callable"
    assert answers(pool, reports["callable"], "python", torch.ones(2)) == {
        "registered": [2.0, 2.0],
        "enum": True,
        "tuples": [True, "n"],
        "dataclass": True,
        "reduced": [5, 0],
        "star": ["by a star", False],
        "circle": ["ab", "ab"],
        "conditional": ["fallback", 7],
        "namespace": "space.without_init.module",
        "standard": True,
        "partial": [4.0, 4.0],
    }


def test_data_files_are_read_however_the_code_likes(
    pool: InterpreterManager, reports: dict[str, PackReport]
) -> None:
    assert answers(pool, reports["callable"], "files", torch.ones(2)) == {
        "operator": [2.0, 2.0],
        "ctypes": True,
        "labels": ["cat", "dog"],
        "binary": [0, 1, 2, 3],
        "weights": [0, 1, 2],
        "array": [0, 1, 2, 3],
        "pieces": "hello world",
        "tokens": [1, 0],
        "top": [1, 2],
    }


def test_torchscript_and_fx_modules_are_parts_of_a_model(
    pool: InterpreterManager, reports: dict[str, PackReport]
) -> None:
    assert reports["module"].kind == "module"
    torch.manual_seed(0)
    inner, plain = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    x = torch.tensor([1.0, 2.0, 3.0])
    expected = torch.stack([torch.relu(each(x)) for each in (inner, plain, plain)])
    got = answers(pool, reports["module"], x)
    assert torch.allclose(got, expected)
    # The branch is there: no relu for what sums to less.
    assert torch.allclose(answers(pool, reports["module"], -x)[0], inner(-x))
