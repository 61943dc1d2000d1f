from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.spec import build_entry

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

PROJECT = {
    "specpkg/good.py": """
        import functools
        import torch

        class Net(torch.nn.Module):
            pass

        class Handler:
            def handle(self, data, context): ...

        class Steps:
            def preprocess(self, data): ...
            def inference(self, data): ...
            def postprocess(self, data): ...

        class Callable:
            def __call__(self): ...

        class Space:
            def build(self):
                return Handler()

        net = Net()
        space = Space()
        make = functools.partial(Handler)
        def bound():
            return functools.partial(Space().build)
        number = 7

        def needs(size):
            return size
    """,
    "specpkg/helper.py": "def explode():\n    raise ValueError('no such weights')\n",
    "specpkg/broken.py": "import specpkg.helper\nx = = 1\n",
    "specpkg/raising.py": "import specpkg.helper\nspecpkg.helper.explode()\n",
    "specpkg/missing.py": "import specpkg.nothing\n",
    "specpkg/leaves.py": "def build():\n    raise SystemExit(3)\n",
}


@pytest.fixture
def root(importable: Write) -> Path:
    return importable(PROJECT)


@pytest.mark.parametrize(
    ("name", "made", "kind"),
    [
        ("Net", "Net", "module"),
        ("net", "Net", "module"),
        ("Handler", "Handler", "handler"),
        ("Steps", "Steps", "handler"),
        ("Callable", "Callable", "callable"),
        ("make", "Handler", "handler"),
        ("space.build", "Handler", "handler"),
        ("bound", "partial", "callable"),
    ],
)
def test_factories_are_called_and_objects_taken(root: Path, name: str, made: str, kind: str) -> None:
    entry, found = build_entry(f"specpkg.good:{name}", root)
    assert (type(entry).__name__, found) == (made, kind)


@pytest.mark.parametrize(
    ("spec", "start", "also"),
    [
        ("specpkg.good", "SPEC 'specpkg.good' is not of the form", "mypkg.factory:build"),
        ("__main__:Net", "SPEC '__main__:Net': __main__ is the script or notebook", "and give models:Net"),
        ("nopkg.good:x", "SPEC 'nopkg.good:x': there is no module 'nopkg'", "--root"),
        ("specpkg.no:x", "SPEC 'specpkg.no:x': there is no module 'specpkg.no'", "--root"),
        ("specpkg.good:mak", "SPEC 'specpkg.good:mak': specpkg.good has no 'mak'", "it has make"),
        ("specpkg.good:number", "SPEC 'specpkg.good:number' gives a int", "handle()"),
        ("specpkg.good:needs", "SPEC 'specpkg.good:needs' must be callable without", "(size)"),
        ("specpkg.broken:x", "specpkg/broken.py:2: x = = 1", "invalid syntax"),
        ("specpkg.raising:x", "specpkg/helper.py:2: raise ValueError", "no such weights"),
        ("specpkg.missing:x", "specpkg/missing.py:1: import specpkg.nothing", "does not import"),
        (
            "specpkg.leaves:build",
            "specpkg/leaves.py:2: raise SystemExit(3)",
            "under if __name__ == '__main__'",
        ),
    ],
)
def test_bad_spec_is_refused_with_the_users_line_first(root: Path, spec: str, start: str, also: str) -> None:
    with pytest.raises(PackError) as caught:
        build_entry(spec, root)
    assert caught.value.message.startswith(start)
    assert also in caught.value.message
