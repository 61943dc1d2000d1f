"""Data files of an archive that code finds through ``__file__``."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archives import (
    MANIFEST_MEMBER,
    add_manifest,
    add_members,
    build_package,
    manifest_of,
    module_records,
)

from interpool.native.archive.data_files import base_folder
from interpool.native.archive.importer import HermeticImporter
from interpool.native.errors import ArchiveError, DigestError, ManifestError

SOURCES = {
    "data_model/__init__.py": "",
    "data_model/net.py": """
        import os
        from importlib import resources
        from pathlib import Path
        import numpy as np
        import torch

        HERE = Path(__file__).parent

        class Net:
            def read(self):
                with open(os.path.join(os.path.dirname(__file__), "labels.txt")) as file:
                    labels = file.read().split()
                return [
                    labels,
                    (HERE / "vocab" / "words.txt").read_text(),
                    (HERE.parent / "top.txt").read_text(),
                    sorted(os.listdir(HERE)),
                    np.load(HERE / "table.npy").tolist(),
                ]

            def resources(self):
                folder = resources.files("data_model")
                with open(folder / "labels.txt") as one, open(str(folder / "vocab" / "words.txt")) as two:
                    return [one.read(), two.read(), folder == HERE, folder.joinpath("table.npy").exists()]

            def resource(self):
                return resources.files("data_model").joinpath("labels.txt").read_text()

            def fail(self):
                raise RuntimeError("on purpose")

        def make():
            return Net()
        """,
}


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


FILES = {
    "data_model/labels.txt": b"cat dog",
    "data_model/vocab/words.txt": b"words",
    "data_model/table.npy": npy(),
    "top.txt": b"above all packages",
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "plain.pt"
    return build_package(
        path, SOURCES, "data_model.net:make", extern=("os", "importlib.**", "pathlib", "numpy", "io")
    )


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's data files are laid out."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


Archive = Callable[..., Path]
Open = Callable[[Path], HermeticImporter]


@pytest.fixture
def archive(plain: Path, tmp_path: Path) -> Archive:
    """The model with data files in it; ``manifest`` changes what its manifest says of them."""

    def write(members: dict[str, bytes] = FILES, name: str = "m.pt", **manifest: Any) -> Path:
        path = tmp_path / name
        path.write_bytes(plain.read_bytes())
        add_members(path, members)
        return add_manifest(path, manifest_of(members, **{"data": sorted(members), **manifest}))

    return write


@pytest.fixture
def open_archive() -> Iterator[Open]:
    with ExitStack() as stack:

        def opened(path: Path) -> HermeticImporter:
            reader = torch._C.PyTorchFileReader(str(path))
            manifest = json.loads(reader.get_record(MANIFEST_MEMBER))
            importer = HermeticImporter(reader, str(path), manifest)
            stack.callback(importer.close)
            return importer

        yield opened


def made(importer: HermeticImporter) -> Any:
    return importer.load_pickle("model", "model.pkl")


def folders(scratch: Path) -> list[Path]:
    return sorted(scratch.glob("interpool-data-*/*"))


# ---- what code sees ------------------------------------------------------------------------


def test_data_lies_beside_the_module_and_nothing_else_does(archive: Archive, open_archive: Open) -> None:
    answer = made(open_archive(archive())).read()
    assert answer == [
        ["cat", "dog"],
        "words",
        "above all packages",
        ["labels.txt", "table.npy", "vocab"],
        [0, 1, 2],
    ]


def test_importlibs_resources_are_the_files_beside_the_module(archive: Archive, open_archive: Open) -> None:
    """They have paths, which are given to ``open`` and to C code."""
    importer = open_archive(archive())
    model = made(importer)
    assert model.resources() == ["cat dog", "words", True, True]
    importer.close()
    assert model.resource() == "cat dog"


def test_data_is_private_and_read_only(archive: Archive, open_archive: Open, scratch: Path) -> None:
    made(open_archive(archive()))
    (folder,) = folders(scratch)
    for path in (folder.parent, folder, *folder.rglob("*")):
        assert oct(path.stat().st_mode & 0o777) == ("0o700" if path.is_dir() else "0o400")


def digests(members: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}


def test_sources_and_empty_folders_lie_beside_the_data(
    plain: Path, archive: Archive, open_archive: Open, scratch: Path
) -> None:
    reader = torch._C.PyTorchFileReader(str(plain))
    sources = {"data_model/net.py": reader.get_record("data_model/net.py")}
    path = archive(
        FILES,
        data=[*FILES, "data_model/results/"],
        modules=module_records((), {"data_model.net": []}),
        files=digests(FILES | sources),
    )
    model = made(open_archive(path))
    assert model.read()[3] == ["labels.txt", "net.py", "results", "table.npy", "vocab"]
    (folder,) = folders(scratch)
    assert (folder / "data_model" / "net.py").read_bytes() == sources["data_model/net.py"]
    assert not list((folder / "data_model" / "results").iterdir())
    assert inspect.getsource(type(model).fail).strip().startswith("def fail(self):")


WALKER = """
    import importlib
    import os
    import pkgutil

    class Walker:
        def walk(self):
            found = [info.name for info in pkgutil.walk_packages(__path__, __name__ + ".")]
            modules = [importlib.import_module(name) for name in found]
            again = [importlib.import_module(__name__ + ".deep.leaf"), *modules]
            listed = sorted(os.listdir(__path__[0]))
            return [module.NAME for module in modules], listed, len({id(module) for module in again})

    def make():
        return Walker()

    def packed():
        import walked.deep
        import walked.deep.leaf
    """


def test_a_package_that_is_walked_gives_the_archives_own_modules(tmp_path: Path, open_archive: Open) -> None:
    sources = {
        "walked/__init__.py": textwrap.dedent(WALKER),
        "walked/deep/__init__.py": "NAME = 'deep'\n",
        "walked/deep/leaf.py": "NAME = 'leaf'\n",
    }
    extern = ("importlib", "os", "pkgutil")
    path = build_package(tmp_path / "m.pt", sources, "walked:make", extern=extern)
    reader = torch._C.PyTorchFileReader(str(path))
    members = {name: reader.get_record(name) for name in sources}
    modules = module_records(extern, {"walked": [], "walked.deep": [], "walked.deep.leaf": []})
    add_manifest(path, manifest_of({}, modules=modules, files=digests(members)))
    importer = open_archive(path)
    finders = len(sys.meta_path)
    names, listed, different = made(importer).walk()
    assert (names, listed) == (["deep", "leaf"], ["__init__.py", "deep"])
    assert different == 2, "no file was run twice"
    with pytest.raises(ModuleNotFoundError):
        __import__(f"{importer.id()}.walked.nothing")
    importer.close()
    assert len(sys.meta_path) == finders


# ---- how long it lies there ----------------------------------------------------------------


def test_data_goes_with_the_last_archive_that_has_it(
    archive: Archive, open_archive: Open, scratch: Path
) -> None:
    first, second = open_archive(archive()), open_archive(archive(name="again.pt"))
    other = open_archive(archive({**FILES, "top.txt": b"another version"}, name="other.pt"))
    models = [made(first), made(second), made(other)]
    assert [model.read()[2] for model in models] == ["above all packages"] * 2 + ["another version"]
    assert len(folders(scratch)) == 2
    first.close()
    assert models[1].read()[1] == "words"
    second.close()
    assert len(folders(scratch)) == 1
    other.close()
    other.close()
    assert not folders(scratch)


def test_a_library_is_the_same_file_as_long_as_the_process_lives(
    archive: Archive, open_archive: Open, scratch: Path
) -> None:
    """The dynamic linker knows it by that; torch takes an operator once."""
    with_library = {**FILES, "data_model/ops.so": b"library"}
    first = open_archive(archive(with_library))
    made(first)
    inode = (folders(scratch)[0] / "data_model/ops.so").stat().st_ino
    first.close()
    next_version = {**with_library, "data_model/labels.txt": b"new labels"}
    made(open_archive(archive(next_version, name="next.pt")))
    (found,) = [
        folder / "data_model/ops.so" for folder in folders(scratch) if (folder / "data_model").exists()
    ]
    assert found.stat().st_ino == inode


HOLDER = """
    import json, sys
    import torch
    from interpool.native.archive.importer import HermeticImporter

    reader = torch._C.PyTorchFileReader(sys.argv[1])
    manifest = json.loads(reader.get_record("interpool-archive/manifest.json"))
    importer = HermeticImporter(reader, sys.argv[1], manifest)
    print(importer.load_pickle("model", "model.pkl").read()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
def test_another_processs_data_stays_until_it_ends_however_it_ends(
    archive: Archive, open_archive: Open, scratch: Path
) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOLDER), str(archive(files, name=name))],
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name, files in {
            "killed.pt": {**FILES, "data_model/ops.so": b"library"},
            "in_order.pt": {**FILES, "more.txt": b"and more"},
        }.items()
    ]
    killed, in_order = holders
    for holder in holders:
        assert holder.stdout
        assert holder.stdout.readline() == "words\n"
    before = folders(scratch)
    assert len(before) == 3  # one of them for the library
    mine = open_archive(archive({**FILES, "more.txt": b"and more"}, name="mine.pt"))
    made(mine)
    assert folders(scratch) == before
    mine.close()
    assert folders(scratch) == before
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert folders(scratch) == before
    other = open_archive(archive({**FILES, "more.txt": b"something else"}, name="other.pt"))
    made(other)  # sweeps
    assert len(folders(scratch)) == 2
    in_order.communicate()
    assert in_order.returncode == 0
    assert len(folders(scratch)) == 1


# ---- refusals ------------------------------------------------------------------------------


def test_data_that_is_not_what_the_manifest_says_is_refused(
    archive: Archive, open_archive: Open, scratch: Path
) -> None:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    path = archive(files={**digests, "top.txt": digests["data_model/labels.txt"]})
    with pytest.raises(DigestError, match=rf"{path}: top.txt is not what its manifest says"):
        made(open_archive(path))
    assert not folders(scratch)


@pytest.mark.parametrize(
    "name",
    [
        "missing.txt",
        "../outside",
        "/etc/passwd",
        "a//b",
        ".data/version",
        "",
        "../",
    ],
)
def test_a_name_that_cannot_be_a_data_files_is_refused(
    archive: Archive, open_archive: Open, name: str
) -> None:
    path = archive({"data_model/labels.txt": b""}, data=[name], files={name: "0" * 64})
    with pytest.raises(ManifestError, match=rf"{path}: its manifest lists .* as a data file"):
        open_archive(path)


def test_a_full_disk_raises_and_leaves_no_files(archive: Archive, open_archive: Open, scratch: Path) -> None:
    path = archive({**FILES, "data_model/ops.so": b"library"})
    importer = open_archive(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))  # of a file; a disk cannot be filled here
    try:
        with pytest.raises(ArchiveError) as caught:
            made(importer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot be written below" in str(caught.value)
    assert not [folder for folder in folders(scratch) if not folder.name.startswith("library-")]
    # When there is room again, the same archive can be imported.
    assert made(importer).read()[1] == "words"


def test_a_folder_that_others_may_write_to_is_refused(archive: Archive, open_archive: Open) -> None:
    base_folder().chmod(0o777)
    with pytest.raises(ArchiveError, match="must be a directory of this user with mode 0700"):
        made(open_archive(archive()))


def test_source_is_shown_though_the_file_is_not_there(archive: Archive, open_archive: Open) -> None:
    model = made(open_archive(archive()))
    with pytest.raises(RuntimeError) as caught:
        model.fail()
    assert 'raise RuntimeError("on purpose")' in "".join(traceback.format_exception(caught.value))
    assert inspect.getsource(type(model).fail).strip().startswith("def fail(self):")
    assert inspect.getsource(type(model)).startswith("class Net:")
    assert inspect.getsource(sys.modules[type(model).__module__]).startswith("\nimport os")
