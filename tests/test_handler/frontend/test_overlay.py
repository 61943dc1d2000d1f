"""The overlay: what is in it, and that many can build it at once."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interpool.handler.errors import OverlayError
from interpool.handler.frontend.overlay import overlay, restore
from interpool.handler.frontend.shim import overlay_record
from interpool.handler.torchserve import REQUIRED_FILES, installed_ts


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERPOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_overlay_is_the_installed_package_with_another_worker_script() -> None:
    home = overlay()
    package = installed_ts()
    names = {entry.name for entry in package.iterdir()} - {"__pycache__"}
    assert {entry.name for entry in (home / "ts").iterdir()} == names
    for name in REQUIRED_FILES:
        own = name == "model_service_worker.py"
        assert ((home / "ts" / name).resolve() == package / name) is not own
    record = overlay_record(str(home))
    assert record["python"] == sys.executable
    assert record["ts"] == str(package)
    assert list((home / "__pycache__").glob("interpool_shim.*.pyc"))


@pytest.mark.long
def test_an_import_of_its_worker_script_gets_torchserves_own_module() -> None:
    home = overlay()
    ask = "import ts, ts.model_service_worker as w; print(ts.__file__, w.TorchModelServiceWorker.__module__)"
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", ask],
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{home}/ts/__init__.py ts.model_service_worker\n"


def test_directories_are_for_their_owner_only(cache: Path) -> None:
    before = os.umask(0o002)
    try:
        home = overlay()
    finally:
        os.umask(before)
    assert {oct(path.stat().st_mode & 0o777) for path in (cache, home.parent, home)} == {"0o700"}


def test_many_processes_build_one() -> None:
    command = [
        sys.executable,
        "-c",
        "from interpool.handler.frontend.overlay import overlay; print(overlay())",
    ]
    with ThreadPoolExecutor(6) as threads:
        runs = list(
            threads.map(
                lambda _: subprocess.run(command, capture_output=True, text=True, check=True),
                range(6),
            )
        )
    (home,) = {Path(run.stdout.strip()) for run in runs}
    assert [entry.name for entry in home.parent.iterdir()] == [home.name]


@pytest.mark.parametrize("lost", ["interpool_shim.py", "interpool-overlay", "ts/version.txt"])
def test_a_damaged_overlay_is_made_anew(lost: str) -> None:
    home = overlay()
    (home / lost).unlink()
    assert overlay() == home
    assert (home / lost).exists()
    assert [entry.name for entry in home.parent.iterdir()] == [home.name]


def test_a_removed_overlay_is_made_again_in_its_place(tmp_path: Path) -> None:
    home = tmp_path / "gone" / "server"
    assert restore(home)
    assert not restore(home)
    assert {entry.name for entry in home.iterdir()} == {entry.name for entry in overlay().iterdir()}


def test_the_overlay_of_a_user_without_a_home_is_in_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERPOOL_CACHE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "~no-such-user/share")
    with pytest.raises(OverlayError, match=r"~no-such-user/share .*Set INTERPOOL_CACHE"):
        overlay()


def test_a_torchserve_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "ts"
    for name in ("__init__.py", *REQUIRED_FILES):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    (package / "version.txt").unlink()
    (package / "version.txt").symlink_to("/proc/self/mem")  # reading it is an error for every user
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ts", raising=False)
    with pytest.raises(OverlayError, match=r"ts.* cannot be read: Input/output error; make it readable"):
        overlay()


def test_the_overlays_launchers_start_a_shim_in_isolation_and_install_nothing(tmp_path: Path) -> None:
    """TorchServe starts these in a model's directory, with that on PYTHONPATH."""
    (tmp_path / "sitecustomize.py").write_text("print('imported')")
    script = tmp_path / "ts" / "model_service_worker.py"
    script.parent.mkdir()
    script.write_text("import sys; print(sys.flags.isolated, sys.argv[1:])")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def run(launcher: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(overlay() / "bin" / launcher), *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)

    for launcher in ("python", "python3"):
        assert run(launcher, str(script), "--a", "b c").stdout == "1 ['--a', 'b c']\n"
    assert run("python", "-c", "print(1)").stdout == "imported\n1\n"
    for refused in (
        ["python", "-m", "pip", "install"],
        ["python", "/x/ts/utils/setup_model_venv.py"],
        ["python", "-m", "torch.backends.xeon.run_cpu", "--ninstances", "1", str(script)],
        ["torchrun"],
    ):
        done = run(*refused)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("interpool: ")
