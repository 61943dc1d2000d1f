"""Archives that change what all models of an interpreter share, beside others on one server.

Each kind is one that people have reported of servers like this one. What the archives have to answer is
what TorchServe's own workers answer for them.
"""

from __future__ import annotations

import sys
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from local_server import TorchServe
from system.conftest import make_ordinary

pytestmark = pytest.mark.long

Files = Mapping[str, str | Path]
ROUNDS = 4  # of questions: the batches of a model go to two interpreters

LIBRARY = """
    import os

    path = []

    def words():
        for folder in path:
            return open(os.path.join(folder, "words.txt")).read()
        raise LookupError
"""

# Uses what the others change, and says what came of it.
PLAIN = """
    import builtins, io, sys
    import numpy, torch
    from PIL import Image, ImageFile
    import lexicon

    def tried(function):
        try:
            return function()
        except Exception as error:
            return type(error).__name__

    def cut_image():
        whole = io.BytesIO()
        Image.effect_noise((64, 64), 50).save(whole, "JPEG")
        return Image.open(io.BytesIO(whole.getvalue()[:-200])).load() and "read"

    def answer():
        return {
            "main": hasattr(sys.modules["__main__"], "Net"),
            "module": torch.nn.Identity()(torch.tensor([2.0, 50.0])).tolist(),
            "names": [
                getattr(getattr(torch.nn, "OurAct", None), "NAME", None),
                getattr(builtins, "our_profile", lambda: None)(),
            ],
            "cut image": tried(cut_image),
            "division": tried(lambda: str(numpy.float64(1) / numpy.zeros(1)[0])),
            "words": tried(lexicon.words),
        }

    class Handler:
        def initialize(self, context):
            self.initialized = True

        def handle(self, data, context):
            return [answer() for _ in data]
"""
RIGHT = {
    "main": False,
    "module": [2.0, 50.0],
    "names": [None, None],
    "cut image": "OSError",
    "division": "inf",
    "words": "LookupError",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchServe]:
    """With the plain archive, which the pool serves from the beginning to the end."""
    library = tmp_path_factory.mktemp("library")
    (library / "lexicon.py").write_text(textwrap.dedent(LIBRARY))
    environment = {
        "INTERPOOL_ORDINARY_ARCHIVES": "pool",
        "PYTHONPATH": str(library),
        "HF_HUB_OFFLINE": "1",
    }
    with TorchServe(environment=environment) as running:
        register(running, "plain", {"handler.py": PLAIN}, workers=2)
        yield running
        assert pools_of(running, "plain") == ["default"]


def register(server: TorchServe, name: str, files: Files, *, version: str = "1.0", workers: int = 1) -> None:
    """Make an ordinary archive with TorchServe's own archiver, and register it."""
    status, text = try_to_register(server, name, files, version=version, workers=workers)
    assert status == 200, text + server.model_log()[-3000:]


def try_to_register(
    server: TorchServe, name: str, files: Files, *, version: str = "1.0", workers: int = 1
) -> tuple[int, str]:
    archive = make_ordinary(server, name, files, version=version)
    answer = server.register(archive, initial_workers=workers)
    return answer.status, answer.text


def pools_of(server: TorchServe, name: str) -> list[str]:
    """The pools that serve a model."""
    return [
        pool
        for pool, state in server.pools().items()
        if any(one["model"].startswith(f"{name}/") for one in state["workers"])
    ]


def ask(server: TorchServe, expected: Mapping[str, Any]) -> None:
    """Ask the plain archive and these, by turns."""
    for _ in range(ROUNDS):
        for name, right in {"plain": RIGHT, **expected}.items():
            answer = server.predict(name, {})
            assert answer.status == 200, f"{name}: {answer.text} {server.model_log()[-3000:]}"
            assert (name, answer.json) == (name, right)


def come_and_go(
    server: TorchServe, archives: Mapping[str, Files], expected: Mapping[str, Mapping[str, Any]]
) -> None:
    """Register one archive after the other, unregister them in that order, and ask each time."""
    there: dict[str, Any] = {}
    for name, files in archives.items():
        register(server, name, files)
        there[name] = expected[name]
        ask(server, there)
    for name in archives:
        assert server.unregister(name).status == 200
        del there[name]
        ask(server, there)


NET = """
    import torch

    class Net(torch.nn.Module):
        NAME = "{name}"

        def __init__(self):
            super().__init__()
            self.{weight} = torch.nn.Linear(4, 1, bias=False)

        def forward(self, x):
            return self.{weight}(x)
"""
LOADS_FROM_MAIN = """
    import sys
    import torch
    import net

    class Handler:
        def initialize(self, context):
            sys.modules["__main__"].Net = net.Net
            self.model = torch.load("whole.pt", weights_only=False)
            self.initialized = True

        def handle(self, data, context):
            import __main__

            y = self.model(torch.ones(1, 4)).item()
            return [{"name": __main__.Net.NAME, "own": __main__.Net is net.Net, "y": y} for _ in data]
"""


def whole_model(text: str, value: float, file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint as a training script writes it: its class is ``__main__.Net``."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(textwrap.dedent(text), space)
    monkeypatch.setattr(sys.modules["__main__"], "Net", space["Net"], raising=False)
    model = space["Net"]()
    with torch.no_grad():
        next(model.parameters()).fill_(value)
    torch.save(model, file)
    return file


def test_checkpoints_of_training_scripts_find_each_their_own_class(
    server: TorchServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives: dict[str, Files] = {}
    expected: dict[str, dict[str, Any]] = {}
    for name, weight, value in (("cats", "a", 0.25), ("dogs", "b", 2.0)):
        text = NET.format(name=name, weight=weight)
        whole = whole_model(text, value, tmp_path / f"{name}.pt", monkeypatch)
        archives[name] = {"handler.py": LOADS_FROM_MAIN, "net.py": text, "whole.pt": whole}
        expected[name] = {"name": name, "own": True, "y": 4 * value}
    come_and_go(server, archives, expected)


UNPACKS = """
    import os, zipfile

    class Handler:
        def initialize(self, context):
            with zipfile.ZipFile("code.zip") as file:
                file.extractall()
            os.remove("code.zip")
            from brain import core

            self.core = core
            self.initialized = True

        def handle(self, data, context):
            return [{"y": self.core.twice(2)} for _ in data]
"""


def test_a_handler_may_use_its_archive_up_when_it_is_loaded(server: TorchServe, tmp_path: Path) -> None:
    code = tmp_path / "code.zip"
    with zipfile.ZipFile(code, "w") as file:
        file.writestr("brain/__init__.py", "")
        file.writestr("brain/core.py", "def twice(x):\n    return 2 * x\n")
    files: Files = {"handler.py": UNPACKS, "code.zip": code}
    come_and_go(server, {"removes": files}, {"removes": {"y": 4}})


CHANGES = textwrap.dedent(PLAIN) + textwrap.dedent(
    """
    import os

    WHO = open("words.txt").read()
    lexicon.path.append(os.getcwd())
    ImageFile.LOAD_TRUNCATED_IMAGES = WHO == "lenient"
    numpy.seterr(all="ignore" if WHO == "lenient" else "raise")
    torch.nn.OurAct = type("OurAct", (torch.nn.Module,), {"NAME": WHO})
    builtins.our_profile = lambda who=WHO: who
    if WHO == "lenient":
        torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: out.clamp(max=10.0))
    """
)


def test_flags_paths_names_and_hooks_of_libraries_are_each_archives_own(server: TorchServe) -> None:
    archives: dict[str, Files] = {
        who: {"handler.py": CHANGES, "words.txt": who} for who in ("lenient", "strict")
    }
    lenient = {**RIGHT, "cut image": "read", "module": [2.0, 10.0]}
    strict = {**RIGHT, "division": "FloatingPointError"}
    expected = {
        "lenient": {**lenient, "words": "lenient", "names": ["lenient"] * 2},
        "strict": {**strict, "words": "strict", "names": ["strict"] * 2},
    }
    come_and_go(server, archives, expected)


SCRIPTS = """
    import model
    import torch

    class Handler:
        def initialize(self, context):
            self.net = None
            self.initialized = True

        def handle(self, data, context):
            if self.net is None:
                self.net = torch.jit.script(model.Net())
            return [str(self.net(torch.ones(2))) for _ in data]
"""
NAMED = """
    import enum
    from typing import NamedTuple, Tuple
    import torch

    class Out(NamedTuple):
        {field}: torch.Tensor

    class Box:
        def __init__(self, n: int):
            self.{field}: int = n

        def get(self) -> int:
            return self.{field} * {factor}

    class Kind(enum.Enum):
        LOW = {factor}

    @torch.jit.interface
    class Face(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pass

    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * {factor}

    class Net(torch.nn.Module):
        inner: Face

        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.kind = Kind.LOW

        def forward(self, x: torch.Tensor) -> Tuple[Out, int, int, int]:
            return Out(x), Box(5).get(), self.kind.value, int(self.inner.forward(x).sum())
"""


def test_versions_are_scripted_each_with_its_own_classes(server: TorchServe) -> None:
    versions = {
        "1.0": (NAMED.format(field="boxes", factor=1), "(Out(boxes=tensor([1., 1.])), 5, 1, 2)"),
        "2.0": (NAMED.format(field="scores", factor=7), "(Out(scores=tensor([1., 1.])), 35, 7, 14)"),
    }
    expected: dict[str, str] = {}

    def there(version: str) -> None:
        text, expected[f"scripts/{version}"] = versions[version]
        register(server, "scripts", {"handler.py": SCRIPTS, "model.py": text}, version=version)
        _ask_texts(server, expected)

    def gone(version: str) -> None:
        assert server.unregister(f"scripts/{version}").status == 200
        del expected[f"scripts/{version}"]
        _ask_texts(server, expected)

    there("1.0")
    there("2.0")
    assert pools_of(server, "scripts") == ["default"]
    make_default = f"{server.management}/models/scripts/2.0/set-default"
    assert server.request("PUT", make_default).status == 200
    gone("1.0")
    there("1.0")
    gone("1.0")
    gone("2.0")


def _ask_texts(server: TorchServe, expected: Mapping[str, str]) -> None:
    for _ in range(ROUNDS):
        for model, right in expected.items():
            assert (model, server.predict(model, {}).text) == (model, right)


FAILS = """
    import builtins
    import torch

    torch.nn.OurAct = lambda: "left behind"
    setattr(builtins, "our_profile", lambda: "left behind")
    torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 0)
    raise ImportError("a library that is not here")
"""


def test_a_load_that_fails_leaves_nothing(server: TorchServe) -> None:
    ask(server, {})
    status, text = try_to_register(server, "fails", {"handler.py": FAILS})
    assert status != 200, text
    ask(server, {})
    server.unregister("fails")
    ask(server, {})


OURS = """
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

    class Config(PreTrainedConfig):
        model_type = "shop-net"
        WORD = open("word.txt").read()

    class Model(PreTrainedModel):
        config_class = Config
        WORD = Config.WORD

        def __init__(self, config):
            super().__init__(config)
            self.linear = torch.nn.Linear(2, 2)
            self.post_init()
"""
REGISTERS = """
    from transformers import AutoConfig, AutoModel
    import ours

    AutoConfig.register("shop-net", ours.Config)
    AutoModel.register(ours.Config, ours.Model)

    class Handler:
        def initialize(self, context):
            self.initialized = True

        def handle(self, data, context):
            config = AutoConfig.for_model("shop-net")
            return [{"config": config.WORD, "model": AutoModel.from_config(config).WORD} for _ in data]
"""


def test_classes_registered_with_transformers_are_each_archives_own(server: TorchServe) -> None:
    come_and_go(
        server,
        {name: {"handler.py": REGISTERS, "ours.py": OURS, "word.txt": name} for name in ("gold", "iron")},
        {name: {"config": name, "model": name} for name in ("gold", "iron")},
    )
