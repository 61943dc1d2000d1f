"""Models from hermetic archives: called from any thread, in any interpreter."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch
from archives import build_package, build_scale
from interpool_testing import Code, every_interpreter, printed, together

from interpool.native import InterpreterManager
from interpool.native.errors import ArchiveError, ConversionError, RemoteError

ONES = torch.ones(4)


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_scale(tmp_path_factory.mktemp("packages") / "scale.pt", 3)


def test_a_model_is_called_from_many_threads(manager: InterpreterManager, scale: Path) -> None:
    model = manager.load_package(scale).load_pickle("model", "model.pkl")

    def work(i: int) -> None:
        for k in range(15):
            x = torch.full((4,), float(i * 100 + k))
            assert torch.equal(model(x), 3 * x)

    together([lambda i=i: work(i) for i in range(8)])  # type: ignore[misc]


def test_a_package_is_found_from_where_the_host_was_when_it_opened_it(
    manager: InterpreterManager, scale: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scale.parent)
    package = manager.load_package(scale.name)
    monkeypatch.chdir("/")
    assert package.load_pickle("model", "model.pkl")(ONES).tolist() == [3.0] * 4


OPENED = """
import logging
from interpool.native.inside import packages

def left_of(path):
    name = packages.open_package(path).importer.id()
    logging.getLogger(f"{name}.net.layers")
    packages.close_package(path)
    return [each for each in logging.root.manager.loggerDict if each.startswith(name)]
"""


def test_an_archive_that_was_closed_leaves_no_loggers(manager: InterpreterManager, tmp_path: Path) -> None:
    path = build_scale(tmp_path / "closed.pt", 3)
    with manager.acquire_session() as session:
        assert Code(session, OPENED).call("left_of", str(path)) == []


def test_only_plain_values_and_tensors_cross_into_a_model(manager: InterpreterManager, scale: Path) -> None:
    model = manager.load_package(scale).load_pickle("model", "model.pkl")
    with pytest.raises(ConversionError, match="a value of type set"):
        model({1})
    with pytest.raises(RemoteError, match=r"forward\(\) missing 1 required positional argument"):
        model()
    assert model(x=ONES).tolist() == [3.0] * 4


def test_a_session_with_the_model_keeps_one_interpreter(manager: InterpreterManager, scale: Path) -> None:
    model = manager.load_package(scale).load_pickle("model", "model.pkl")
    session = model.acquire_session(timeout=60)
    with session:
        assert session.self.attr("weight").attr("tolist")().to_value() == [3.0] * 4
        assert session.self.interpreter_id == session.interpreter_id
        assert session.self(ONES).to_value().tolist() == [3.0] * 4
        session.global_("builtins", "setattr")(session.self, "marked", True)
        marked = session.interpreter_id
    # It is made once in each interpreter, and stays.
    with ExitStack() as stack:
        for _ in range(len(manager)):
            session = model.acquire_session(timeout=60)
            stack.enter_context(session)
            found = session.global_("builtins", "hasattr")(session.self, "marked").to_value()
            assert found is (session.interpreter_id == marked)


def test_a_package_that_is_dropped_takes_nothing_from_another_of_the_same_file(
    manager: InterpreterManager, scale: Path
) -> None:
    one, other = manager.load_package(scale), manager.load_package(scale)
    model = other.load_pickle("model", "model.pkl")
    with ExitStack() as stack:
        for _ in range(len(manager)):
            session = model.acquire_session(timeout=60)
            stack.enter_context(session)
            session.global_("builtins", "setattr")(session.self, "still_here", True)
    del one
    with ExitStack() as stack:
        for _ in range(len(manager)):
            session = model.acquire_session(timeout=60)
            stack.enter_context(session)
            assert session.global_("builtins", "hasattr")(session.self, "still_here").to_value()


def test_a_package_that_is_dropped_takes_no_settings_from_its_files_next_state(tmp_path: Path) -> None:
    """As when a server loads an archive again that has changed."""

    def build(name: str) -> Path:
        source = f"""
            import torch

            torch.set_default_dtype(torch.float64)

            class Model(torch.nn.Module):
                def forward(self):
                    return "{name}", str(torch.zeros(1).dtype)

            def make():
                return Model()
            """
        return build_package(tmp_path / f"{name}.pt", {f"{name}_sets.py": source}, f"{name}_sets:make")

    default = torch.get_default_dtype()
    try:
        first, second = build("first"), build("second")
    finally:
        torch.set_default_dtype(default)
    path = tmp_path / "model.pt"
    with InterpreterManager(1) as manager:
        first.replace(path)
        old = manager.load_package(path).load_pickle("model", "model.pkl")
        assert old() == ("first", "torch.float64")
        second.replace(path)
        new = manager.load_package(path).load_pickle("model", "model.pkl")
        assert new() == ("second", "torch.float64")
        del old
        assert new() == ("second", "torch.float64")
        leases = manager.stats()["models"][str(path)]["leases"]
        assert leases >= 5
        del new
        assert str(path) not in manager.stats()["models"]


def test_texts_and_bytes_are_read(manager: InterpreterManager, tmp_path: Path) -> None:
    path = build_package(
        tmp_path / "texts.pt",
        {"nothing_much.py": "def make(): return 7"},
        "nothing_much:make",
        texts={"labels.txt": "cat\nHündchen\n"},
    )
    package = manager.load_package(path)
    assert package.load_text("model", "labels.txt") == "cat\nHündchen\n"
    assert package.load_binary("model", "labels.txt") == "cat\nHündchen\n".encode()
    with pytest.raises(ArchiveError, match=r"texts\.pt holds no 'other\.txt' in package 'model'"):
        package.load_text("model", "other.txt")


def _same_names(path: Path, word: str, sign: int) -> Path:
    return build_package(
        path,
        {
            "same_name/__init__.py": "",
            "same_name/words.py": f"WORD = {word!r}\nseen = []\n",
            "same_name/model.py": f"""
                import torch
                from same_name import words

                class Model(torch.nn.Module):
                    def forward(self, x):
                        words.seen.append(len(words.seen))
                        return {{"word": words.WORD, "y": {sign} * x, "calls": len(words.seen)}}

                def make():
                    return Model()
                """,
        },
        "same_name.model:make",
    )


def test_packages_with_modules_of_the_same_names_stay_apart(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    plus = _same_names(tmp_path / "plus.pt", "plus", 1)
    minus = _same_names(tmp_path / "minus.pt", "minus", -1)
    models = [manager.load_package(path).load_pickle("model", "model.pkl") for path in (plus, minus)]

    def work(i: int) -> None:
        for _ in range(10):
            answer = models[i % 2](ONES)
            assert answer["word"] == ("plus", "minus")[i % 2]
            assert answer["y"].tolist() == [(1.0, -1.0)[i % 2]] * 4

    together([lambda i=i: work(i) for i in range(8)])  # type: ignore[misc]
    # Both in one interpreter, each with its own module's state.
    with manager.acquire_session(timeout=60) as session:
        load = session.global_("interpool.native.inside.packages", "load_object")
        loaded = [load(str(path), "model", "model.pkl") for path in (plus, minus)]
        first = [model(ONES).to_value()["calls"] for model in loaded]
        loaded[0](ONES)
        assert [model(ONES).to_value()["calls"] for model in loaded] == [first[0] + 2, first[1] + 1]


def test_an_archive_that_is_wanted_everywhere_at_once_opens_everywhere(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    # Many members, so that reading the directory takes a while.
    maker = """
    import torch

    class Many(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.all = torch.nn.ParameterList(
                torch.nn.Parameter(torch.full((2,), float(i))) for i in range(200)
            )

        def forward(self):
            return sum(p.detach().sum().item() for p in self.all)

    def make():
        return Many()
    """
    first = build_package(tmp_path / "many.pt", {"many_model.py": maker}, "many_model:make")
    for attempt in range(3):
        path = tmp_path / f"many{attempt}.pt"
        path.write_bytes(first.read_bytes())
        with every_interpreter(manager) as sessions:
            loads = [
                session.global_("interpool.native.inside.packages", "load_object") for session in sessions
            ]
            works = [partial(load, str(path), "model", "model.pkl") for load in loads]
            answers = [model().to_value() for model in together(works)]
        assert answers == [2.0 * sum(range(200))] * len(sessions)


@pytest.mark.long
def test_a_served_model_does_not_care_what_becomes_of_its_file(tmp_path: Path) -> None:
    """In the interpreter that has it already, and in the one that gets it only afterwards."""
    for harm in ("overwrite", "truncate", "unlink", "replace"):
        build_scale(tmp_path / f"{harm}.pt", 3, size=2**20)
    build_scale(tmp_path / "other.pt", 5, size=2**20)
    said = printed(
        """
        import os, sys, threading
        from pathlib import Path
        import torch
        from interpool import InterpreterManager

        folder = Path(sys.argv[1])
        ones = torch.ones(2**20)

        def overwrite(path):
            with open(path, "r+b") as file:
                file.write(b"x" * os.path.getsize(path))

        def replace(path):
            (folder / "other.pt").replace(path)

        harms = {
            "overwrite": overwrite,
            "truncate": lambda path: os.truncate(path, 100),
            "unlink": lambda path: path.unlink(),
            "replace": replace,
        }

        def mean(this):
            try:
                return this(ones).to_value().mean().item()
            except Exception as error:
                return f"{type(error).__name__}: {error}"[:200]

        def everywhere(model):
            leased, answers = [], []
            for _ in range(2):
                try:
                    leased.append(model.acquire_session())
                except Exception as error:
                    answers.append(f"{type(error).__name__}: {error}"[:200])
            answers += [mean(session.self) for session in leased]
            for session in leased:
                session.close()
            return answers

        def call():
            while not stop.is_set():
                try:
                    seen.add(model(ones).mean().item())
                except Exception as error:
                    seen.add(f"{type(error).__name__}: {error}"[:200])

        with InterpreterManager(2) as manager:
            for name, harm in harms.items():
                model = manager.load_package(folder / f"{name}.pt").load_pickle("model", "model.pkl")
                seen, stop = set(), threading.Event()
                caller = threading.Thread(target=call)
                caller.start()
                harm(folder / f"{name}.pt")
                print(name, everywhere(model), flush=True)
                stop.set()
                caller.join()
                print(name, seen, flush=True)
            model = manager.load_package(folder / "replace.pt").load_pickle("model", "model.pkl")
            print("opened again", everywhere(model))
        """,
        str(tmp_path),
    )
    expected = []
    for harm in ("overwrite", "truncate", "unlink", "replace"):
        expected += [f"{harm} [3.0, 3.0]", f"{harm} {{3.0}}"]
    assert said.splitlines() == [*expected, "opened again [5.0, 5.0]"]


REOPENED = """
import sys, time

class Model:
    def __call__(self):
        for _ in range(20):
            time.sleep(0.001)
            if sys.modules.get(__name__) is None:
                return "its archive was closed"
        return "its own"

def make():
    return Model()
"""


@pytest.mark.long
def test_an_archive_that_is_opened_again_at_once_stays_open(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    """The interpreters drop later what its former opener left behind."""
    path = build_package(tmp_path / "again.pt", {"again.py": REOPENED}, "again:make", extern=("sys", "time"))

    def answers(_: int) -> str:
        model = manager.load_package(path).load_pickle("model", "model.pkl")
        answer: str = model()
        return answer

    assert {answers(i) for i in range(15)} == {"its own"}
