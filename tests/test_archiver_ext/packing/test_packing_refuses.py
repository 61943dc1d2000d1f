from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from test_archiver_ext.building import build

from interpool.archiver_ext import PackError, pack
from interpool.archiver_ext.packing.write import building
from interpool.native.errors import StructureError

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

pytestmark = pytest.mark.fresh_children

PROJECT = {
    "mypkg/m.py": """
        import os
        import signal
        from mypkg.helper import explode

        def boom():
            explode()

        def dies():
            os.kill(os.getpid(), signal.SIGKILL)
    """,
    "mypkg/helper.py": "def explode(): raise ValueError('no such weights')\n",
}


def refusal(spec: str, root: Path, output: Path, **globs: list[str]) -> PackError:
    with pytest.raises(PackError) as caught:
        pack(spec, output, root=root, **globs)
    left = {path.name for path in output.parent.iterdir()}
    assert left <= {"project", "m.ptpkg"}, "a failed pack leaves no file"
    return caught.value


@pytest.mark.long
def test_failure_leaves_the_archive_that_was_there_and_the_users_traceback(
    project: Write, tmp_path: Path
) -> None:
    output = tmp_path / "m.ptpkg"
    output.write_bytes(b"the old one")
    error = refusal("mypkg.m:boom", project(PROJECT), output)
    assert output.read_bytes() == b"the old one"
    assert error.message.startswith("mypkg/helper.py:1: def explode(): raise ValueError")
    assert "in boom" in error.user_traceback
    assert "in explode" in error.user_traceback
    assert "archiver_ext" not in error.user_traceback
    assert error.user_traceback.rstrip() in str(error)


@pytest.mark.long
def test_pack_names_the_signal_that_killed_its_building_process(project: Write, tmp_path: Path) -> None:
    error = refusal("mypkg.m:dies", project(PROJECT), tmp_path / "m.ptpkg")
    assert error.message.startswith("the process that was building the model was killed by SIGKILL")


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "start", "advice"),
    [
        (
            """
            import pkgutil
            class Entry:
                def __setstate__(self, state):
                    pkgutil.resolve_name("mypkg.m")
                def __getstate__(self):
                    return {"a": 1}
                def __call__(self):
                    pass
            """,
            'mypkg/m.py:5: pkgutil.resolve_name("mypkg.m")',
            "let the archive's own code import it",
        ),
        (
            """
            import annotated_types
            LIMIT = annotated_types.Gt(3)
            class Entry:
                def __call__(self):
                    pass
            """,
            "mypkg/m.py:3: LIMIT = annotated_types.Gt(3)",
            "--extern",
        ),
    ],
)
def test_archive_that_does_not_load_is_refused_with_advice(
    project: Write, tmp_path: Path, source: str, start: str, advice: str
) -> None:
    root = project({"mypkg/m.py": source})
    error = refusal("mypkg.m:Entry", root, tmp_path / "m.ptpkg", mock=["annotated_types"])
    assert error.message.startswith(start), error
    assert advice in error.message


def test_output_that_cannot_be_written_is_refused_before_building(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="must be a directory"):
        pack("a:b", tmp_path / "missing" / "m.ptpkg", root=tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for there in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(PackError, match=f"cannot write {there}: it exists, and is no file"):
            pack("a:b", there, root=tmp_path)
    with pytest.raises(PackError, match="is not a directory"):
        pack("a:b", tmp_path / "m.ptpkg", root=tmp_path / "missing")
    with pytest.raises(PackError, match="--atol nan: it must be a number"):
        pack("a:b", tmp_path / "m.ptpkg", root=tmp_path, atol=float("nan"))
    with pytest.raises(PackError, match="must stand alone between dots"):
        pack("a:b", tmp_path / "m.ptpkg", root=tmp_path, extern=["numpy**"])


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG])
def test_pack_names_a_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    said = os.strerror(number)

    def refuse(*_args: object, **_kwargs: object) -> str:
        raise OSError(number, said)

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(PackError, match=rf"^cannot write {re.escape(str(tmp_path))}/m\.ptpkg: .*{said}"):
        pack("a:b", tmp_path / "m.ptpkg", root=tmp_path)


# In a process of its own: no file may be longer than this there, as on a disk with so much room.
PACK_WITHIN = """
import resource
import sys
from pathlib import Path

from interpool.archiver_ext import PackError, pack
from interpool.archiver_ext.packing.options import PackKeywords
from interpool.archiver_ext.packing.pack import propose

root, output, room = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(room), int(room)))
try:
    if output:
        pack("mypkg.m:build", Path(output), root=Path(root))
    else:
        propose("mypkg.m:build", PackKeywords(root=Path(root)))
except PackError as error:
    print(error)
"""
LINEAR = """
    import torch

    def build():
        return torch.nn.Linear({size}, {size})
"""


def packed_within(root: Path, output: str, room: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", PACK_WITHIN, root, output, str(room)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # what is cut short would be read again
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "room"),
    [
        pytest.param(1600, 1 << 20, id="weights"),
        pytest.param(2, 2048, id="the end", marks=pytest.mark.long),
    ],
)
def test_archive_that_finds_no_room_is_no_object_that_cannot_be_pickled(
    project: Write, tmp_path: Path, size: int, room: int
) -> None:
    root = project({"mypkg/m.py": LINEAR.format(size=size)})
    done = packed_within(root, str(tmp_path / "m.ptpkg"), room)
    said = f"the archive cannot be written to {tmp_path}: the disk is full, or a quota or a limit of"
    assert done.stdout.startswith(said), done.stdout + done.stderr
    assert done.stdout.endswith("\n  What to do: make room there, or name another place by -o\n")
    assert "terminate called" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["project"]


@pytest.mark.long
def test_a_plan_that_finds_no_room_says_how_to_give_it_some(project: Write) -> None:
    done = packed_within(project({"mypkg/m.py": LINEAR.format(size=1600)}), "", 1 << 20)
    assert done.stdout.endswith("or set TMPDIR to a larger place\n"), done.stdout + done.stderr


def test_a_model_of_more_files_than_an_archive_may_have_is_refused_with_advice(
    importable: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = StructureError("holds 70,000 files; 65,536 are allowed", "too-many-members")
    monkeypatch.setattr(building, "digests", Mock(side_effect=refused))
    with pytest.raises(PackError, match=r"more than 65,536 files.*\n  What to do: pack many data files"):
        build("mypkg.m:build", importable({"mypkg/m.py": LINEAR.format(size=2)}), tmp_path)
