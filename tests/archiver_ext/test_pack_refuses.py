from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext import PackError, pack

if TYPE_CHECKING:
    from pathlib import Path

    from archiver_ext.conftest import Write

PROJECT = {
    "mypkg/factory.py": """
        import threading
        from mypkg.helper import Keeper, explode

        def build():
            return lambda: 0

        def nested():
            return Keeper(extra={"deep": threading.Lock()})

        def boom():
            explode()

        def dies():
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)

        def good():
            return Keeper(extra=1)
    """,
    "mypkg/helper.py": """
        import annotated_types

        class Keeper:
            def __init__(self, extra):
                self.extra = extra
            def __call__(self):
                return self.extra

        def explode():
            raise ValueError("no such weights")
    """,
}


def refusal(spec: str, root: Path, output: Path, **globs: list[str]) -> PackError:
    with pytest.raises(PackError) as caught:
        pack(spec, output, root=root, **globs)
    left = {path.name for path in output.parent.iterdir()}
    assert left <= {"project", "m.ptpkg"}, "a failed pack leaves no file"
    return caught.value


@pytest.mark.parametrize(
    ("name", "start", "also"),
    [
        ("dies", "the process that was building the model was killed by SIGKILL", ""),
        ("build", "mypkg/factory.py:6: return lambda: 0", "cannot be pickled"),
        ("nested", "the object that mypkg.factory:nested gives", "at extra.deep (lock)"),
    ],
)
def test_object_that_cannot_be_had_is_refused(
    project: Write, tmp_path: Path, name: str, start: str, also: str
) -> None:
    error = refusal(f"mypkg.factory:{name}", project(PROJECT), tmp_path / "m.ptpkg")
    assert error.message.startswith(start)
    assert also in error.message


def test_the_users_traceback_is_kept_and_ours_left_out(project: Write, tmp_path: Path) -> None:
    error = refusal("mypkg.factory:boom", project(PROJECT), tmp_path / "m.ptpkg")
    assert "in boom" in error.user_traceback
    assert "in explode" in error.user_traceback
    assert "archiver_ext" not in error.user_traceback
    assert error.user_traceback.rstrip() in str(error)


def test_denied_module_starts_with_the_line_that_imports_it(project: Write, tmp_path: Path) -> None:
    error = refusal("mypkg.factory:good", project(PROJECT), tmp_path / "m.ptpkg", deny=["annotated_*"])
    assert error.message.splitlines() == [
        "mypkg/helper.py:2: import annotated_types",
        "  needs annotated_types, which is denied by --deny annotated_*",
        "  What to do: remove the import, or leave the module out with --mock annotated_types",
    ]


def test_compiled_code_is_named_with_the_line_and_the_way_to_it(project: Write, tmp_path: Path) -> None:
    source = {"mypkg/m.py": "import numpy.linalg\ndef entry(): pass\ndef build(): return entry"}
    error = refusal("mypkg.m:build", project(source), tmp_path / "m.ptpkg", intern=["numpy.**"])
    assert error.message.startswith("mypkg/m.py:1: import numpy.linalg\n  needs numpy.")
    assert "compiled code" in error.message
    assert "by way of mypkg.m -> numpy.linalg" in error.message
    assert "--extern numpy.**" in error.message
    assert len(error.message.splitlines()) <= 5, "not torch.package's page of names"


def test_mocked_module_that_the_object_needs_is_refused(project: Write, tmp_path: Path) -> None:
    source = {
        "mypkg/m.py": """
            import annotated_types
            class Held:
                def __init__(self):
                    self.held = annotated_types.Gt(3)
                def __call__(self):
                    pass
        """
    }
    error = refusal("mypkg.m:Held", project(source), tmp_path / "m.ptpkg", mock=["annotated_types"])
    assert error.message.startswith("mypkg/m.py:2: import annotated_types\n")
    assert "mocked by --mock annotated_types, but the object" in error.message


@pytest.mark.parametrize(
    ("option", "said"), [("mock", "always takes from the server"), ("deny", "is denied by")]
)
def test_standard_library_is_denied_but_never_mocked(
    project: Write, tmp_path: Path, option: str, said: str
) -> None:
    source = {"mypkg/m.py": "import json\ndef entry(): pass\ndef build(): return entry"}
    error = refusal("mypkg.m:build", project(source), tmp_path / "m.ptpkg", **{option: ["json"]})
    assert error.message.startswith("mypkg/m.py:1: import json\n")
    assert said in error.message


@pytest.mark.parametrize(
    ("source", "start", "advice"),
    [
        (
            """
            import importlib
            class Entry:
                def __setstate__(self, state):
                    importlib.import_module("mypkg.m")
                def __getstate__(self):
                    return {"a": 1}
                def __call__(self):
                    pass
            """,
            'mypkg/m.py:5: importlib.import_module("mypkg.m")',
            "import it with an import statement",
        ),
        (
            """
            from __future__ import annotations
            from dataclasses import dataclass
            @dataclass
            class Entry:
                size: int = 3
                def __call__(self):
                    pass
            """,
            "mypkg/m.py:4: @dataclass",
            "pytorch issue 74909",
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
    with pytest.raises(PackError, match="is not a directory"):
        pack("a:b", tmp_path / "m.ptpkg", root=tmp_path / "missing")
    with pytest.raises(PackError, match="must stand alone between dots"):
        pack("a:b", tmp_path / "m.ptpkg", root=tmp_path, extern=["numpy**"])


def test_failure_leaves_the_archive_that_was_there(project: Write, tmp_path: Path) -> None:
    output = tmp_path / "m.ptpkg"
    output.write_bytes(b"the old one")
    refusal("mypkg.factory:boom", project(PROJECT), output)
    assert output.read_bytes() == b"the old one"
