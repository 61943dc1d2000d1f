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
from model_archiver.model_archiver_config import ModelArchiverConfig
from stock_archiver import wrap

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
            "names": [hasattr(torch.nn, "OurAct"), hasattr(builtins, "our_profile")],
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
    "names": [False, False],
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
    folder = server.root / f"{name}-{version}"
    folder.mkdir(exist_ok=True)
    for file, content in files.items():
        if isinstance(content, str):
            (folder / file).write_text(textwrap.dedent(content))
        else:
            (folder / file).write_bytes(content.read_bytes())
    extra = [str(folder / file) for file in files if file != "handler.py"]
    config = ModelArchiverConfig(
        model_name=name,
        version=version,
        handler=str(folder / "handler.py"),
        extra_files=",".join(extra) or None,
        export_path=str(server.store),
        force=True,
    )
    wrap(config)
    answer = server.register(f"{name}.mar", initial_workers=workers)
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
            if context.model_name == "removes":
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
    come_and_go(server, {"removes": files, "keeps": files}, {"removes": {"y": 4}, "keeps": {"y": 4}})


SETS_FLAGS = textwrap.dedent(PLAIN) + textwrap.dedent(
    """
    import os

    lexicon.path.append(os.getcwd())
    ImageFile.LOAD_TRUNCATED_IMAGES = os.path.exists("lenient.txt")
    numpy.seterr(all="ignore" if os.path.exists("lenient.txt") else "raise")
    """
)


def test_flags_and_paths_of_libraries_are_each_archives_own(server: TorchServe) -> None:
    come_and_go(
        server,
        {
            "lenient": {"handler.py": SETS_FLAGS, "words.txt": "lenient", "lenient.txt": ""},
            "strict": {"handler.py": SETS_FLAGS, "words.txt": "strict"},
        },
        {
            "lenient": {**RIGHT, "cut image": "read", "words": "lenient"},
            "strict": {**RIGHT, "division": "FloatingPointError", "words": "strict"},
        },
    )


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
TUPLE = """
    from typing import NamedTuple
    import torch

    class Out(NamedTuple):
        {field}: torch.Tensor

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Out:
            return Out(x)
"""
CLASS = """
    import torch

    class Box:
        def __init__(self, n: int):
            self.{field}: int = n

        def get(self) -> int:
            return self.{field} * {factor}

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> int:
            return Box(5).get()
"""
ENUM = """
    import enum
    import torch

    class Kind(enum.Enum):
        LOW = {value}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kind = Kind.LOW

        def forward(self, x: torch.Tensor) -> int:
            return self.kind.value
"""
INTERFACE = """
    import torch

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

        def forward(self, x: torch.Tensor) -> int:
            return int(self.inner.forward(x).sum())
"""


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        (
            "tuple",
            {
                "1.0": (TUPLE.format(field="boxes"), "Out(boxes=tensor([1., 1.]))"),
                "2.0": (TUPLE.format(field="scores"), "Out(scores=tensor([1., 1.]))"),
            },
        ),
        (
            "class",
            {"1.0": (CLASS.format(field="a", factor=1), 5), "2.0": (CLASS.format(field="b", factor=7), 35)},
        ),
        ("enum", {"1.0": (ENUM.format(value=1), 1), "2.0": (ENUM.format(value=9), 9)}),
        ("face", {"1.0": (INTERFACE.format(factor=1), 2), "2.0": (INTERFACE.format(factor=6), 12)}),
    ],
)
def test_versions_are_scripted_each_with_its_own_classes(
    server: TorchServe, name: str, versions: dict[str, tuple[str, Any]]
) -> None:
    expected: dict[str, Any] = {}

    def there(version: str) -> None:
        text, right = versions[version]
        register(server, name, {"handler.py": SCRIPTS, "model.py": text}, version=version)
        expected[f"{name}/{version}"] = right
        _ask_texts(server, expected)

    def gone(version: str) -> None:
        assert server.unregister(f"{name}/{version}").status == 200
        del expected[f"{name}/{version}"]
        _ask_texts(server, expected)

    there("1.0")
    there("2.0")
    assert pools_of(server, name) == ["default"]
    make_default = f"{server.management}/models/{name}/2.0/set-default"
    assert server.request("PUT", make_default).status == 200
    gone("1.0")
    there("1.0")
    gone("1.0")
    gone("2.0")


def _ask_texts(server: TorchServe, expected: Mapping[str, Any]) -> None:
    for _ in range(ROUNDS):
        for model, right in expected.items():
            assert (model, server.predict(model, {}).text) == (model, str(right))


REPAIRS = """
    import torch

    def repair(module, args, out):
        return torch.nan_to_num(out, nan=0.0).clamp(max=10.0)

    torch.nn.modules.module.register_module_forward_hook(repair)

    class Handler:
        def initialize(self, context):
            self.model = torch.nn.Identity()
            self.initialized = True

        def handle(self, data, context):
            return [{"y": self.model(torch.tensor([float("nan"), 50.0])).tolist()} for _ in data]
"""


def test_a_hook_for_all_modules_is_its_archives_own(server: TorchServe) -> None:
    come_and_go(server, {"repairs": {"handler.py": REPAIRS}}, {"repairs": {"y": [0.0, 10.0]}})


ACTS = """
    import torch

    WHO = open("who.txt").read()

    class OurAct(torch.nn.Module):
        NAME = WHO
"""
ADDS_NAMES = """
    import builtins
    import torch
    import acts

    torch.nn.OurAct = acts.OurAct
    builtins.our_profile = lambda who=acts.WHO: who

    class Handler:
        def initialize(self, context):
            self.initialized = True

        def handle(self, data, context):
            return [{"torch.nn": torch.nn.OurAct.NAME, "builtins": our_profile()} for _ in data]
"""


def test_names_that_archives_add_to_modules_are_each_their_own(server: TorchServe) -> None:
    come_and_go(
        server,
        {name: {"handler.py": ADDS_NAMES, "acts.py": ACTS, "who.txt": name} for name in ("one", "two")},
        {name: {"torch.nn": name, "builtins": name} for name in ("one", "two")},
    )


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

    AutoConfig.register("shop-net", ours.Config{options})
    AutoModel.register(ours.Config, ours.Model{options})

    class Handler:
        def initialize(self, context):
            self.initialized = True

        def handle(self, data, context):
            config = AutoConfig.for_model("shop-net")
            return [{{"config": config.WORD, "model": AutoModel.from_config(config).WORD}} for _ in data]
"""


@pytest.mark.long
@pytest.mark.parametrize("options", ["", ", exist_ok=True"])
def test_classes_registered_with_transformers_are_each_archives_own(server: TorchServe, options: str) -> None:
    handler = REGISTERS.format(options=options)
    come_and_go(
        server,
        {name: {"handler.py": handler, "ours.py": OURS, "word.txt": name} for name in ("gold", "iron")},
        {name: {"config": name, "model": name} for name in ("gold", "iron")},
    )
