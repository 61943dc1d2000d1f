"""A note about one process's full import of torch serves the next, and is ignored if it could be wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from interpool_testing import assert_clean, printed, run_program

from interpool.native import provision
from interpool.native.inside import import_notes

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A cache with the note of a full import, and what the dispatcher was like after it."""
    stock = provision.current_environment().directory
    folder = tmp_path_factory.mktemp("noted")
    home = folder / "cache" / stock.name
    home.mkdir(parents=True, mode=0o700)
    for each in stock.iterdir():
        if each.name != "imports":
            (home / each.name).symlink_to(each)
    code = DISPATCHER.format(path=str(folder / "full"), opaque=OPAQUE)
    assert not is_lean(first_interpreter(code, INTERPOOL_CACHE=str(home.parent)))
    assert len(list((home / "imports").iterdir())) == 1
    return home, folder / "full"


@pytest.fixture
def notes(noted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of that note, which a test may change."""
    home = tmp_path / "cache" / noted[0].name
    shutil.copytree(noted[0], home, symlinks=True)
    monkeypatch.setenv("INTERPOOL_CACHE", str(home.parent))
    return home / "imports"


def first_interpreter(code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A process whose first interpreter says how much is deferred, and then runs the code."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return run_program(
            f"""
            from interpool.native import InterpreterManager
            with InterpreterManager(1) as pool, pool.acquire_session() as session:
                print(session.global_("namespaces", "deferred")().to_value(), flush=True)
                session.global_("builtins", "exec")({code!r}, session.global_("builtins", "dict")())
            """
        )


def is_lean(done: subprocess.CompletedProcess[str]) -> bool:
    assert_clean(done)
    return int(done.stdout.split()[0]) > 300


DISPATCHER = """
import sys, torch
c = torch._C
names = sorted(c._dispatch_get_all_op_names())
with open({path!r}, "w") as file:
    for name in names:
        print(name, c._dispatch_dump(name), c._dispatch_dump_table(name), file=file)
    print(sorted(map(str, c._jit_get_all_schemas())), file=file)
    print(c._dispatch_find_dangling_impls(), file=file)
    print([c._is_opaque_type_registered(each) for each in {opaque!r}], file=file)
"""
OPAQUE = ["enum.Enum", "torch._C.Generator", "torch._higher_order_ops.invoke_leaf_function._LeafCallable"]


@pytest.mark.usefixtures("notes")
def test_a_lean_first_interpreter_leaves_the_process_as_a_full_one_does(
    noted: tuple[Path, Path], tmp_path: Path
) -> None:
    full, lean = noted[1], tmp_path / "lean"
    assert is_lean(first_interpreter(DISPATCHER.format(path=str(lean), opaque=OPAQUE)))
    assert full.read_text().count("\n") > 3000
    assert "0x" not in full.read_text()
    assert lean.read_text() == full.read_text()
    assert "[True, True, True]" in full.read_text()


@pytest.mark.usefixtures("notes")
def test_a_kernel_that_a_lean_first_interpreter_left_out_is_registered_when_it_is_called() -> None:
    assert is_lean(
        first_interpreter(
            """
import torch
meta = torch.ones(2, 3, device="meta")
assert torch.nn.functional.celu(meta).shape == (2, 3)
assert torch.ops.prims.clone(torch.ones(2)).tolist() == [1, 1]
assert torch.ops.higher_order.cond(True, lambda: (torch.ones(1),), lambda: (torch.zeros(1),), ())
torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
"""
        )
    )


@pytest.mark.usefixtures("notes")
def test_a_host_with_torch_of_its_own_takes_a_note_before_and_after() -> None:
    for order in ("import torch; start()", "start(); import torch"):
        printed(f"""
            from interpool.native import InterpreterManager
            pools = []
            def start():
                pools.append(InterpreterManager(1))
            {order}
            def ask():
                return torch.nn.functional.celu(torch.ones(2, device='meta')).shape
            assert ask() == (2,)
            assert torch.ops.prims.clone(torch.ones(2)).tolist() == [1, 1]
            with pools[0], pools[0].acquire_session() as session:
                assert session.global_("namespaces", "deferred")().to_value() > 300
                names = session.global_("builtins", "dict")()
                session.global_("builtins", "exec")(
                    "import torch; assert torch.ops.prims.clone(torch.ones(2)).tolist() == [1, 1]", names
                )
            assert torch.ops.prims.clone(torch.ones(2)).tolist() == [1, 1]
            """)


@pytest.mark.parametrize(
    "damage", ["cut", *(pytest.param(each, marks=pytest.mark.long) for each in ("registrations", "file"))]
)
def test_a_note_that_is_not_whole_or_not_true_any_more_does_no_harm(notes: Path, damage: str) -> None:
    (note,) = notes.iterdir()
    kept = json.loads(note.read_text())
    if damage == "cut":
        note.write_text(note.read_text()[:-1000])
    elif damage == "registrations":
        content = json.loads(kept["note"])
        content["registered"] += "nonsense\n"
        note.write_text(json.dumps({**kept, "note": json.dumps(content)}))
        done = first_interpreter()  # nothing that interpool has written: said, and not met again
        assert done.returncode != 0
        assert "a note that is damaged at: nonsense" in done.stderr
    else:
        torchs = next(stamp for file, stamp in kept["files"] if file.endswith("/torch/__init__.py"))
        torchs[0] += 1  # its size
        note.write_text(json.dumps(kept))
    assert not is_lean(first_interpreter())
    assert is_lean(first_interpreter())


def test_an_import_that_would_find_a_module_now_is_made_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, modules = tmp_path / "notes", tmp_path / "modules"
    modules.mkdir()
    monkeypatch.syspath_prepend(str(modules))
    with import_notes.watch() as seen, pytest.raises(ImportError):
        import interpool_that_is_not_there  # noqa: F401
    assert "interpool_that_is_not_there" in seen.missing
    import_notes.write(str(folder), "content", seen)
    assert import_notes.read(str(folder)) == "content"
    (modules / "interpool_that_is_not_there.py").touch()
    sys.path_importer_cache.pop(str(modules), None)
    assert import_notes.read(str(folder)) == ""


def test_a_file_of_an_import_that_has_changed_ends_its_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, module = tmp_path / "cache" / "notes", tmp_path / "interpool_of_this_test.py"
    module.write_text("a = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with import_notes.watch() as seen:
            import interpool_of_this_test  # type: ignore[import-not-found]  # noqa: F401
        import_notes.write(str(folder), "content", seen)
    finally:
        sys.modules.pop("interpool_of_this_test", None)
    assert import_notes.read(str(folder)) == "content"
    os.utime(module, (1, 1))
    assert import_notes.read(str(folder)) == ""
    module.unlink()
    assert import_notes.read(str(folder)) == ""


def test_a_note_moves_with_the_folder_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, moved = tmp_path / "a \u00fc", tmp_path / "elsewhere" / "b"
    (bundle / "m").mkdir(parents=True)
    (bundle / "m" / "interpool_of_this_test.py").write_text("a = 1")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(bundle / "m"))
        try:
            with import_notes.watch() as seen:
                import interpool_of_this_test  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
            note = json.dumps(
                [
                    f"{bundle}/torch.py",
                    "/torch.py",
                    f"at {bundle}/torch.py:1",
                    f"a\t{bundle}/b",
                    f"/not{bundle}/torch.py",
                ]
            )
            import_notes.write(str(bundle / "imports"), note, seen)
        finally:
            sys.modules.pop("interpool_of_this_test", None)
        assert import_notes.read(str(bundle / "imports")) == note
    moved.parent.mkdir()
    bundle.rename(moved)
    os.utime(moved / "m" / "interpool_of_this_test.py", (1, 1))
    assert import_notes.read(str(moved / "imports")) == ""  # found by another search path
    monkeypatch.syspath_prepend(str(moved / "m"))
    content = json.loads(import_notes.read(str(moved / "imports")))
    assert content == [
        f"{moved}/torch.py",
        "/torch.py",
        f"at {moved}/torch.py:1",
        f"a\t{moved}/b",
        f"/not{bundle}/torch.py",
    ]
    (moved / "m" / "interpool_of_this_test.py").write_text("a = 12345")
    assert import_notes.read(str(moved / "imports")) == ""
