"""Files of the project that an archive's code finds by their paths: no server has them."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext import PackError, pack
from interpool.archiver_ext.packing.prove.project_files import ProjectFiles

if TYPE_CHECKING:
    from test_archiver_ext.conftest import Write

MODEL = """
    import os
    import tempfile
    import torch
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    HERE = Path(__file__).parent

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = HERE / "words.txt", HERE / "out.txt"

        def forward(self, x):
            return x + len(self.read())

        def read(self):
            {read}

    def build():
        return Net()

    def example_inputs():
        return torch.ones(2)
"""


def written(read: str) -> dict[str, str]:
    return {"mypkg/m.py": MODEL.format(read=read), "mypkg/words.txt": "a b", "mypkg/.cache/words.txt": "a"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("read", "error", "line"),
    [
        ("return open(self.words).read()", "FileNotFoundError", " (mypkg/m.py:19: return open(self.words"),
        (
            "assert self.words.exists(), 'run download.sh first'; return self.words.read_text()",
            "AssertionError: run download.sh first",
            " (mypkg/m.py:19: assert self.words.exists()",
        ),
        ("return os.listdir(self.words.parent)", "FileNotFoundError", " (mypkg/m.py:19: return os.listdir"),
        (
            "return ThreadPoolExecutor().submit(self.words.stat).result()",
            "FileNotFoundError",
            " (mypkg/m.py:19: return ThreadPoolExecutor()",
        ),
    ],
)
def test_a_path_on_this_machine_that_the_model_holds_is_refused(
    project: Write, tmp_path: Path, read: str, error: str, line: str
) -> None:
    root = project(written(read))
    with pytest.raises(PackError) as caught:
        pack("mypkg.m:build", tmp_path / "m.ptpkg", root=root)
    said = caught.value.message
    assert error in said
    assert "looked for files of your project by their paths on this machine:" in said
    assert f"\n    {root}/mypkg{'' if 'listdir' in read else '/words.txt'}{line}" in said
    assert "What to do: make the path from __file__ when the file is opened" in said


READ = """
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "a").write_text("a")
                assert os.listdir(folder)
            self.out.write_text("a b")
            assert self.out.read_text()
            assert Path(self.out.parent, ".cache/words.txt").read_text(), "pack warns of hidden files"
            assert all(os.path.exists(each) for each in (os.__file__, torch.__file__, "/proc/self/stat"))
            return (Path(__file__).parent / "words.txt").read_text()
"""


@pytest.mark.long
def test_other_files_are_found_even_below_the_projects_folder(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(written(READ) | {"tmp/old": ""})
    monkeypatch.setenv("TMPDIR", str(root / "tmp"))
    assert pack("mypkg.m:build", root / "m.ptpkg", root=root).attempts == 1


@pytest.mark.long
def test_modules_that_the_server_shall_have_find_their_own_files(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(
        {
            "src/words15/__init__.py": """
                import os
                def files(): return len(os.listdir(os.path.dirname(__file__)))
            """,
            "m.py": """
                import words15
                def entry(x): return x + words15.files()
                def build(): return entry
                def example_inputs(): return 1
            """,
        }
    )
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    report = pack("m:build", tmp_path / "m.ptpkg", root=root, extern=["words15.**"])
    assert report.attempts == 1


def test_files_of_environments_temporary_and_hidden_folders_are_not_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    inside = ["a.txt", "data/b.txt"]
    others = ["venv/pyvenv.cfg", "lib/site-packages/c.txt", ".env", "data/.cache/d", "tmp/e", "work/f"]
    for name in inside + others:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "link").symlink_to("/etc")
    (root / "data/link").symlink_to(root / ".env")
    monkeypatch.setattr(sys, "prefix", str(root / "venv"))
    monkeypatch.setattr(tempfile, "tempdir", str(root / "tmp"))
    monkeypatch.chdir(root / "work")
    files = ProjectFiles([root], time.time_ns() + 1_000_000_000)
    held = {
        name
        for name in [*inside, *others, "link/passwd", "data/link", "missing"]
        if files.holds(str(root / name))
    }
    assert held == {*inside, "data/link"}
    assert files.holds(str(root))
    assert not files.holds(str(root.parent))
    assert not ProjectFiles([root], (root / "a.txt").stat().st_ctime_ns).holds(str(root / "a.txt"))
    everything = ProjectFiles([Path("/")], time.time_ns() + 1_000_000_000)
    assert not any(
        everything.holds(path) for path in ("/etc/passwd", "/proc/self/stat", "/dev/null", sys.executable)
    )
