from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import PathDistribution
from typing import TYPE_CHECKING, Any

import pytest

from interpool.archiver_ext.packing.jobs import Trouble
from interpool.archiver_ext.packing.prove.trial_load import Blocker, find_trouble

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TOPS = ("ours", "helper", "forgotten", "ours_native")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that are installed on this machine, behind a blocker."""
    for name in ("ours", "helper", "forgotten"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "ours_native").mkdir()
    (tmp_path / "ours_native" / "__init__.py").write_text("import ours_native.helper")
    for name in ("helper", "core", "model"):
        (tmp_path / "ours_native" / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    blocker = Blocker(
        project=["ours", "ours_native"],
        left_out=["forgotten"],
        installed=["helper"],
        extern=["ours_native.core"],
    )
    monkeypatch.setattr(sys, "meta_path", [blocker, *sys.meta_path])
    yield
    for name in [each for each in sys.modules if each.partition(".")[0] in TOPS]:
        del sys.modules[name]


@pytest.mark.usefixtures("outside")
def test_project_is_refused_to_everyone() -> None:
    with pytest.raises(ModuleNotFoundError, match="ours is in the archive"):
        importlib.import_module("ours")


@pytest.mark.usefixtures("outside")
def test_installed_module_is_refused_to_packaged_code_only() -> None:
    with pytest.raises(ModuleNotFoundError, match="helper is in the archive"):
        exec("import importlib; importlib.import_module('helper')", {"__torch_package__": True})
    importlib.import_module("helper")


@pytest.mark.usefixtures("outside")
def test_module_of_the_project_that_is_not_packed_is_refused_to_all_but_the_projects_installed_code() -> None:
    with pytest.raises(ModuleNotFoundError, match="forgotten is the project's, but not in the archive"):
        importlib.import_module("forgotten")
    exec("import forgotten", {"__name__": "ours_native.core"})


@pytest.mark.usefixtures("outside")
def test_asking_whether_there_is_a_module_is_no_import() -> None:
    importlib.util.find_spec("ours")
    exec("import importlib.util; importlib.util.find_spec('helper')", {"__torch_package__": True})
    with pytest.raises(ModuleNotFoundError, match="ours is in the archive"):
        importlib.import_module("ours")


@pytest.mark.usefixtures("outside")
def test_extern_and_its_parents_are_let_through() -> None:
    importlib.import_module("ours_native")


@pytest.mark.usefixtures("outside")
def test_packages_installed_beside_an_extern_are_let_through_to_its_own_code_only() -> None:
    importlib.import_module("ours_native.core")
    assert "ours_native.helper" in sys.modules, "the package's own __init__.py imports it"
    with pytest.raises(ModuleNotFoundError, match=r"ours_native\.model is in the archive"):
        importlib.import_module("ours_native.model")
    with pytest.raises(ModuleNotFoundError, match=r"ours_native\.model is in the archive"):
        exec("import ours_native.model", {"__torch_package__": True, "__name__": "ours_native.factory"})


def distribution(site: Path, name: str, files: dict[str, str]) -> PathDistribution:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (site / "lib").mkdir()
    (site / "lib/__init__.py").touch()  # importlib.metadata leaves out files that are not there
    for file, text in {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", **files}.items():
        (info / file).write_text(text)
    return PathDistribution(info)


@pytest.mark.parametrize(
    ("files", "hidden_from"),
    [
        ({"RECORD": "lib/__init__.py,,\n"}, ["archive"]),
        ({"top_level.txt": "lib\nother\n"}, ["archive"]),
        ({"top_level.txt": "mine\n"}, ["archive", "lib", "other"]),
        ({"top_level.txt": "left\nmine\n"}, ["archive", "lib", "other"]),
        ({"top_level.txt": "mine\nother\n"}, []),
        ({"top_level.txt": "taken\nlib\n"}, []),
        ({"top_level.txt": "other\n"}, []),
        (
            {"direct_url.json": '{"url": "file://TREE", "dir_info": {"editable": true}}'},
            ["archive", "lib", "other"],
        ),
        ({"direct_url.json": '{"url": "file://TREE", "dir_info": {}}'}, []),
        ({"direct_url.json": '{"url": "file://TREE/other", "dir_info": {"editable": true}}'}, []),
    ],
)
def test_metadata_of_what_is_in_the_archive_is_hidden_from_what_has_it_not(
    tmp_path: Path, files: dict[str, str], hidden_from: list[str]
) -> None:
    files = {name: text.replace("TREE", str(tmp_path / "tree")) for name, text in files.items()}
    found = distribution(tmp_path, "some", files)
    blocker = Blocker(project=["mine"], left_out=["left"], installed=["lib"], extern=["taken"])
    asked = {}
    for name in ("archive", "lib", "other", "mine"):
        scope: dict[str, Any] = {"sys": sys, "__name__": name, "__torch_package__": name == "archive"}
        exec("def asks(ask): return ask(sys._getframe())", scope)
        asked[name] = scope["asks"](lambda frame: blocker.hides([tmp_path / "tree/src"], frame, found))
    assert [name for name, hidden in asked.items() if hidden] == hidden_from


# What a stand-in in an archive looks like to code that has its traceback.
STAND_IN = """
class MockedObject:
    _name = "<torch_package_0>.cffi.FFI"
    def __call__(self):
        raise NotImplementedError("was mocked out")
"""


def hides_the_cause() -> None:
    scope: dict[str, Any] = {}
    exec(compile(STAND_IN, "<torch_package_0>._mock.py", "exec"), scope)
    try:
        scope["MockedObject"]()()
    except NotImplementedError:
        raise ValueError("it did not work") from None


def test_a_mock_is_found_behind_an_error_that_hides_it() -> None:
    with pytest.raises(ValueError, match="it did not work") as caught:
        hides_the_cause()
    assert find_trouble(caught.value, Blocker([], [], [], [])) == (Trouble.MOCKED, "cffi.FFI")


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (FileNotFoundError("weights.bin"), Trouble.FILE_MISSING),
        (RuntimeError("weights.bin: No such file or directory (os error 2)"), Trouble.FILE_MISSING),
        (OSError("cannot open weights.bin: No such file or directory"), Trouble.FILE_MISSING),
        (RuntimeError("weights.bin is damaged"), Trouble.RAISED),
    ],
)
def test_a_trial_finds_a_missing_file_with_any_type_of_error(error: Exception, trouble: Trouble) -> None:
    assert find_trouble(error, Blocker([], [], [], [])) == (trouble, "")
