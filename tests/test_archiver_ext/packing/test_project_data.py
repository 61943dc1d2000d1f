"""Which of the project's files go into an archive as data, and which are refused."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest
import torch
from test_archiver_ext.building import build

from interpool.archiver_ext import PackError
from interpool.archiver_ext.packing.decide.project_data import find_data, holds_data, save_data
from interpool.archiver_ext.packing.decide.rules import Rules
from interpool.archiver_ext.packing.write.exporter import HermeticExporter

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

PROJECT = {
    "mypkg/__init__.py": "",
    "mypkg/m.py": """
        import annotated_types
        import mypkg.helper

        class Entry:
            def __call__(self):
                pass
    """,
    "mypkg/helper.py": "NUMBER = 1\n",
    "mypkg/script.py": "",
    "mypkg/vocab/words.txt": "words",
    "mypkg/vocab/deep/more.txt": "more",
    "mypkg/__pycache__/m.pyc": "",
    "top.txt": "top",
}


@pytest.fixture
def root(importable: Write) -> Path:
    root = importable(PROJECT)
    (root / "mypkg" / "results").mkdir()
    return root


def exported(
    root: Path, folder: Path, *data: str, **globs: tuple[str, ...]
) -> tuple[list[str], dict[str, bytes]]:
    """What save_data lists, and the archive's members."""
    from mypkg.m import Entry  # type: ignore[import-not-found]

    exporter = HermeticExporter(folder / "archive.ptpkg", Rules(root, globs))
    exporter.save_pickle("model", "model.pkl", Entry())
    listed = save_data(exporter, find_data(root, data))
    exporter.close()
    with zipfile.ZipFile(folder / "archive.ptpkg") as file:
        return listed, {name.partition("/")[2]: file.read(name) for name in file.namelist()}


# ---- globs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        (["top.txt"], ["top.txt"]),
        (["mypkg/vocab/*"], ["mypkg/vocab/words.txt"]),
        (["./mypkg/vocab/words.txt"], ["mypkg/vocab/words.txt"]),
        (["mypkg/**"], ["mypkg/vocab/deep/more.txt", "mypkg/vocab/words.txt"]),
        (["mypkg/*.py"], ["mypkg/__init__.py", "mypkg/helper.py", "mypkg/m.py", "mypkg/script.py"]),
        (["top.*", "**/more.txt", "*.txt"], ["mypkg/vocab/deep/more.txt", "top.txt"]),
        (["mypkg/vocab/"], ["mypkg/vocab/deep/more.txt", "mypkg/vocab/words.txt"]),
        (["mypkg/*/"], ["mypkg/results/", "mypkg/vocab/deep/more.txt", "mypkg/vocab/words.txt"]),
    ],
)
def test_globs_name_files_below_the_root(root: Path, globs: list[str], found: list[str]) -> None:
    assert find_data(root, globs) == found


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("*.json", "no file below .* has such a name"),
        ("mypkg/vocab", "mypkg/vocab is a folder: --data 'mypkg/vocab/' is all that is in it"),
        ("../*", "stay below it"),
        ("/etc/passwd", "must be relative"),
    ],
)
def test_glob_that_names_no_file_of_the_project_is_refused(root: Path, pattern: str, said: str) -> None:
    with pytest.raises(PackError, match=f"--data .*{said}"):
        find_data(root, [pattern])


def test_links_to_a_parent_are_not_followed(root: Path) -> None:
    for name in ("here", "again"):
        (root / "mypkg/vocab" / name).symlink_to(".")
    (root / "mypkg/vocab/up").symlink_to("..")
    (root / "mypkg/other").symlink_to("vocab/deep")
    words = ["mypkg/vocab/deep/more.txt", "mypkg/vocab/words.txt"]
    assert find_data(root, ["mypkg/vocab/"]) == words
    assert find_data(root, ["**/*s.txt"]) == words[1:]
    assert find_data(root, ["mypkg/other/"]) == ["mypkg/other/more.txt"]
    assert holds_data(root / "mypkg")


# ---- files -----------------------------------------------------------------------------------


def test_data_keeps_its_path_in_the_archive_and_an_empty_folder_is_listed_only(
    root: Path, tmp_path: Path
) -> None:
    (root / "link.txt").symlink_to(root / "top.txt")
    listed, members = exported(root, tmp_path, "mypkg/vocab/**", "link.txt", "mypkg/results/")
    files = {"link.txt": b"top", "mypkg/vocab/deep/more.txt": b"more", "mypkg/vocab/words.txt": b"words"}
    assert listed == sorted([*files, "mypkg/results/"])
    assert {name: members[name] for name in files} == files
    assert not [name for name in members if "results" in name]


@pytest.mark.usefixtures("fresh_metadata")
def test_metadata_of_the_project_that_packing_looks_up_does_not_go_in(
    importable: Write, tmp_path: Path
) -> None:
    """As ``pip install -e`` writes it: it has the author's name, and paths of this machine."""
    info = {"PKG-INFO": "Name: mypkg", "top_level.txt": "mypkg", "SOURCES.txt": "mypkg/m.py"}
    root = importable(PROJECT | {f"mypkg.egg-info/{name}": text for name, text in info.items()})
    assert build("mypkg.m:Entry", root, tmp_path).data == {}


@pytest.mark.long
@pytest.mark.parametrize("named", [[], ["mypkg/.env"]])
def test_hidden_file_that_is_read_goes_in_only_if_it_is_named(
    importable: Write, tmp_path: Path, named: list[str]
) -> None:
    root = importable(
        {
            "mypkg/reads.py": """
                from pathlib import Path
                HERE = Path(__file__).parent
                LABELS = (HERE / "labels.txt").read_text()
                PASSWORD = (HERE / ".env").read_text()
                TOKEN = (HERE.parent / ".auth [1]/token").read_text()

                def entry(): ...
                def build(): return entry
            """,
            "mypkg/labels.txt": "a",
            "mypkg/.env": "secret",
            ".auth [1]/token": "secret",
        }
    )
    built = build("mypkg.reads:build", root, tmp_path, data=named)
    lines = {
        ".auth [1]/token": 'mypkg/reads.py:6: TOKEN = (HERE.parent / ".auth [1]/token").read_text()',
        "mypkg/.env": 'mypkg/reads.py:5: PASSWORD = (HERE / ".env").read_text()',
    }
    assert built.data.keys() == {"mypkg/labels.txt", *named}
    assert built.hidden == {name: line for name, line in lines.items() if name not in named}
    assert [warning.splitlines()[0] for warning in built.warnings] == [*built.hidden.values()]
    for name, warning in zip(built.hidden, built.warnings, strict=True):
        option = warning.partition("--data '")[2].partition("'")[0]
        assert find_data(root, [option]) == [name]


@pytest.mark.long
def test_a_file_that_is_read_through_a_link_is_packed_by_the_links_name(
    importable: Write, tmp_path: Path
) -> None:
    root = importable(
        {
            "mypkg/reads.py": """
                from pathlib import Path
                HERE = Path(__file__).parent
                WORDS = [(HERE / name).read_text() for name in ("words.txt", "more/words.txt")]

                def entry(): ...
                def build(): return entry
            """,
            ".dvc/cache/ab/cdef": "a b",
            ".dvc/cache/more/words.txt": "c d",
        }
    )
    (root / "mypkg/words.txt").symlink_to("../.dvc/cache/ab/cdef")
    (root / "mypkg/more").symlink_to(root / ".dvc/cache/more")
    built = build("mypkg.reads:build", root, tmp_path)
    assert built.data.keys() == {"mypkg/words.txt", "mypkg/more/words.txt"}
    assert not built.hidden
    assert not built.warnings


def test_of_files_outside_of_the_project_only_those_that_were_there_are_warned_of(
    importable: Write, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "there.txt").write_text("1")
    source = f"""
        from pathlib import Path
        FOLDER = Path({str(folder)!r})

        def entry(x):
            (FOLDER / "made.txt").write_text("2")
            return [(FOLDER / name).read_text() for name in ("made.txt", "there.txt")]

        def build(): return entry
        def example_inputs(): return 1
    """
    (warning,) = build("mypkg.m:build", importable({"mypkg/m.py": source}), tmp_path, inputs="").warnings
    assert f"reads {folder}/there.txt, which lies outside of the project" in warning


@pytest.mark.long
def test_files_that_other_threads_read_go_in_with_the_line_that_waits_for_them(
    importable: Write, tmp_path: Path
) -> None:
    many = [f"mypkg/two/{each}.txt" for each in range(40)]
    root = importable(
        {
            "mypkg/reads.py": """
                from concurrent.futures import ThreadPoolExecutor
                from pathlib import Path

                def beside(name): return Path(__file__).parent / name
                def read(name): return beside(name).read_text()

                with ThreadPoolExecutor() as pool:
                    ONE = list(pool.map(read, ["one.txt"]))
                    TWO = list(pool.map(Path.read_text, [beside(f"two/{each}.txt") for each in range(40)]))

                def entry(x):
                    with ThreadPoolExecutor() as pool:
                        return list(pool.map(Path.read_text, [beside("three.txt")]))

                def build(): return entry
                def example_inputs(): return 1
            """,
            "mypkg/one.txt": "1",
            "mypkg/three.txt": "3",
        }
        | dict.fromkeys(many, "2")
    )
    built = build("mypkg.reads:build", root, tmp_path, inputs="")
    assert built.data.keys() == {"mypkg/one.txt", *many, "mypkg/three.txt"}
    assert built.data["mypkg/one.txt"].startswith("mypkg/reads.py:6: def read(name)")
    assert all(built.data[name].startswith("mypkg/reads.py:10: ") for name in many)
    assert built.data["mypkg/three.txt"].startswith("mypkg/reads.py:14: ")


def test_name_in_any_language_is_kept(root: Path, tmp_path: Path) -> None:
    name = "mypkg/vocab/wörter 語.txt"
    (root / name).write_text("ü", encoding="utf-8")
    assert exported(root, tmp_path, name)[0] == [name]
    reader = torch._C.PyTorchFileReader(str(tmp_path / "archive.ptpkg"))
    assert reader.get_record(name).decode() == "ü"


@pytest.mark.parametrize("name", ["a\\b.txt", "new\nline.txt", "u\u0308ber.txt", f"{'n' * 250}/{'n' * 250}"])
def test_name_that_no_archive_can_hold_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).touch()
    with pytest.raises(PackError, match=r"(?s)a data file.s name must be .*What to do: rename"):
        save_data(HermeticExporter(tmp_path / "a.ptpkg", Rules(root)), [name])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.txt", "there is no such data file"),
        ("/etc/passwd", "must lie in the project"),
        ("../project/top.txt", "must lie in the project"),
        ("mypkg/vocab", r"a folder, whose files are mypkg/vocab/\*\*"),
    ],
)
def test_data_that_is_no_file_of_the_project_is_refused(
    root: Path, tmp_path: Path, name: str, said: str
) -> None:
    with pytest.raises(PackError, match=f"{name}: .*{said}"):
        save_data(HermeticExporter(tmp_path / "a.ptpkg", Rules(root)), [name])


def refusal(root: Path, folder: Path, name: str, **globs: tuple[str, ...]) -> str:
    with pytest.raises(PackError) as caught:
        exported(root, folder, name, **globs)
    return caught.value.message


def test_link_out_of_the_project_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    said = refusal(root, tmp_path, "link.txt")
    assert said.startswith("link.txt: this data file is a link that leads out of the project, to /")
    assert "What to do: copy the file" in said


@pytest.mark.parametrize(
    ("name", "globs", "said"),
    [
        ("mypkg/helper/data.txt", {}, "mypkg.helper is a module, and its name cannot be a folder's too"),
        (
            "annotated_types/data.txt",
            {"extern": ("annotated_types",)},
            "annotated_types is taken from the server",
        ),
        ("interpool-archive/data.txt", {}, "interpool-archive is the archive's own folder"),
        ("MYPKG/Helper.py", {}, "a module has the same name except for its case"),
        ("mypkg/helper.py", {"mock": ("mypkg.helper",)}, "mypkg.helper is mocked"),
        ("mypkg/helper.py", {"extern": ("mypkg.helper",)}, "mypkg.helper is taken from the server"),
    ],
)
def test_name_that_something_else_in_the_archive_has_is_refused(
    root: Path, tmp_path: Path, name: str, globs: dict[str, tuple[str, ...]], said: str
) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).touch()
    message = refusal(root, tmp_path, name, **globs)
    assert message.startswith(f"{name}: this data file cannot be in the archive, where {said}\n")
