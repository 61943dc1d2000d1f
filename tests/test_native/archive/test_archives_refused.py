"""Archives that are not what they should be: each refusal names the file, and the pool goes on."""

from __future__ import annotations

import contextlib
import os
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from archives import build_package, build_scale, rewrite
from interpool_testing import every_interpreter, together

from interpool.native import InterpreterManager
from interpool.native.errors import ArchiveError, InterpoolError, RemoteError


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_scale(tmp_path_factory.mktemp("good") / "good.pt", 3)


@pytest.fixture(scope="module", autouse=True)
def goes_on(manager: InterpreterManager, good: Path) -> Iterator[None]:
    """After all refusals, every interpreter is free and answers."""
    yield
    model = manager.load_package(good).load_pickle("model", "model.pkl")
    with every_interpreter(manager) as sessions:
        assert [session.from_value(1).to_value() for session in sessions] == [1] * len(sessions)
    assert model(torch.ones(4)).tolist() == [3.0] * 4


def refused(manager: InterpreterManager, path: Path) -> str:
    with pytest.raises(ArchiveError) as caught:
        manager.load_package(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_pipe_is_refused_and_not_waited_for(manager: InterpreterManager, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    try:
        together([lambda: refused(manager, tmp_path / "pipe.pt")], timeout=60)
    finally:
        os.close(os.open(tmp_path / "pipe.pt", os.O_RDWR | os.O_NONBLOCK))  # wakes the waiting reader


def test_a_path_that_is_no_file_or_no_zip_is_refused(manager: InterpreterManager, tmp_path: Path) -> None:
    (tmp_path / "noise.pt").write_bytes(bytes(range(256)) * 1000)
    assert "not a zip" in refused(manager, tmp_path / "noise.pt")
    assert "No such file" in refused(manager, tmp_path / "missing.pt")
    refused(manager, tmp_path)
    (tmp_path / "empty.pt").touch()
    assert "is empty" in refused(manager, tmp_path / "empty.pt")


@pytest.mark.parametrize("left", [4, 0.5, -22, -1])
def test_an_archive_cut_short_is_refused(
    manager: InterpreterManager, tmp_path: Path, good: Path, left: float
) -> None:
    whole = good.read_bytes()
    size = int(left * len(whole)) if 0 < left < 1 else int(left)
    (tmp_path / "cut.pt").write_bytes(whole[:size])
    assert "cut short" in refused(manager, tmp_path / "cut.pt")


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"readme.txt": b""},
        {"model/.data/version": b"6\n"},
        {"archive/data.pkl": b"", "archive/version": b"3\n", "archive/byteorder": b"little"},
    ],
    ids=["empty", "flat", "half", "torch.save"],
)
def test_a_zip_that_is_no_package_is_refused(
    manager: InterpreterManager, tmp_path: Path, members: dict[str, bytes]
) -> None:
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    refused(manager, tmp_path / "other.pt")


def refused_to_load(manager: InterpreterManager, path: Path) -> InterpoolError:
    package = manager.load_package(path)
    with pytest.raises(InterpoolError) as caught:
        package.load_pickle("model", "model.pkl")
    return caught.value


def test_weights_of_the_wrong_length_are_refused(
    manager: InterpreterManager, tmp_path: Path, good: Path
) -> None:
    path = rewrite(
        good,
        tmp_path / "short.pt",
        change=lambda name, content: content[:-4] if name.endswith(".storage") else content,
    )
    error = refused_to_load(manager, path)
    assert isinstance(error, ArchiveError)
    assert str(path) in str(error)
    assert "12 bytes long, not 16" in str(error)


def test_missing_weights_are_refused(manager: InterpreterManager, tmp_path: Path, good: Path) -> None:
    path = rewrite(
        good,
        tmp_path / "without.pt",
        change=lambda name, content: None if name.endswith(".storage") else content,
    )
    error = refused_to_load(manager, path)
    assert isinstance(error, ArchiveError)
    assert str(path) in str(error)
    assert ".data/0.storage" in str(error)


def test_an_unknown_resource_is_refused_by_its_name(manager: InterpreterManager, good: Path) -> None:
    package = manager.load_package(good)
    for where, name in (("model", "other.pkl"), ("other", "model.pkl"), ("", "model.pkl"), ("../..", "x")):
        with pytest.raises(ArchiveError) as caught:
            package.load_pickle(where, name)
        assert str(good) in str(caught.value)
        assert repr(name) in str(caught.value)


def _garbage(content: bytes) -> bytes:
    return b"\x80\x02garbage"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        _garbage,
        lambda content: content.replace(b"Scale", b"Other"),
    ],
    ids=["half", "garbage", "another class"],
)
def test_a_damaged_pickle_is_an_error(
    manager: InterpreterManager, tmp_path: Path, good: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = rewrite(
        good,
        tmp_path / "damaged.pt",
        change=lambda name, content: damage(content) if name == "model/model.pkl" else content,
    )
    assert isinstance(refused_to_load(manager, path), (ArchiveError, RemoteError))


def test_flipped_bits_are_an_error_or_harmless_but_never_the_end(
    manager: InterpreterManager, tmp_path: Path, good: Path
) -> None:
    chance = random.Random(0)
    whole = good.read_bytes()
    for attempt in range(20):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 10])):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path = tmp_path / f"flipped{attempt}.pt"
        path.write_bytes(damaged)
        with contextlib.suppress(InterpoolError):
            manager.load_package(path).load_pickle("model", "model.pkl")(torch.ones(4))


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("raise LookupError('at import')", "LookupError: at import"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_package_whose_code_fails_is_an_error_with_its_traceback(
    manager: InterpreterManager, tmp_path: Path, good: Path, source: str, error: str
) -> None:
    path = rewrite(
        good,
        tmp_path / "failing.pt",
        change=lambda name, content: source.encode() if name == "scale_model.py" else content,
    )
    caught = refused_to_load(manager, path)
    assert isinstance(caught, RemoteError)
    assert error in str(caught)
    assert "scale_model.py" in caught.traceback


def test_a_failed_load_can_be_tried_again(manager: InterpreterManager, tmp_path: Path) -> None:
    path = build_package(
        tmp_path / "second.pt",
        {
            "second_try.py": """
                import os

                class Flaky:
                    def __setstate__(self, state):
                        if not os.path.exists(state["flag"]):
                            raise LookupError("not yet")
                        self.__dict__.update(state)

                    def __call__(self):
                        return "now"

                def make():
                    flaky = Flaky()
                    flaky.flag = __file__ + ".flag"
                    return flaky
                """
        },
        "second_try:make",
    )
    package = manager.load_package(path)
    with pytest.raises(RemoteError, match="not yet"):
        package.load_pickle("model", "model.pkl")
    (tmp_path / "second.src" / "second_try.py.flag").touch()
    assert package.load_pickle("model", "model.pkl")() == "now"
