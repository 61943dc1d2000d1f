"""The C++ API: the example program, built as a user would, run without any Python of its own."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from pathlib import Path

import pytest
import torch
from archives import build_package, build_scale
from compile import build
from interpool_testing import run_beside
from paths import EXTENSIONS, ROOT

import interpool.native

EXAMPLE = ROOT / "native/examples/figure2"
CMAKE_DIR = Path(str(interpool.native.__file__)).parent / "lib/cmake/interpool"


run = functools.partial(run_beside, timeout=120)


@pytest.fixture(scope="module")
def figure2() -> Path:
    """The program; kept, as torch's headers take a while, for each state of sources, headers and torch."""
    headers = sorted((CMAKE_DIR.parents[2] / "include/interpool").glob("*.h"))
    assert headers
    configs = sorted(CMAKE_DIR.iterdir())
    parts = [path.read_bytes() for path in (*sorted(EXAMPLE.iterdir()), *headers, *configs)]
    key = hashlib.sha256(b"\0".join([*parts, torch.__version__.encode(), bytes(CMAKE_DIR)]))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "interpool-tests"
    folder = caches / key.hexdigest()[:16]
    program = folder / "figure2"
    if not program.exists():
        configured = run("cmake", "-S", EXAMPLE, "-B", folder, f"-Dinterpool_DIR={CMAKE_DIR}")
        assert configured.returncode == 0, configured.stderr
        built = run("cmake", "--build", folder)
        assert built.returncode == 0, built.stdout + built.stderr
    return program


def linked(name: str) -> Path:
    """One of the tests' own programs, linked to interpool and torch without CMake."""
    native = CMAKE_DIR.parents[2]
    libraries = (native / "lib", Path(torch.__file__).parent / "lib")
    options = (f"-I{native / 'include'}", f"-L{native / 'lib'}", "-linterpool", "-pthread")
    paths = tuple(f"-Wl,-rpath,{folder}" for folder in libraries)
    return build(EXTENSIONS / f"{name}.cpp", name, with_torch=True, options=(*options, *paths), program=True)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared cache for two interpreters, made in a process of its own: it counts its slots from 1."""
    file = tmp_path_factory.mktemp("prepared") / "prepared.txt"
    done = run("interpool", "prepare", "--slots", "2", "--import", "numpy", "--output", file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{file}: ")
    assert done.stdout.endswith(" copies for 2 interpreters\n")
    return file


def test_a_program_without_a_python_serves_a_package_from_two_interpreters(
    figure2: Path, prepared: Path, tmp_path: Path
) -> None:
    assert "libpython" not in run("ldd", figure2).stdout
    package = build_scale(tmp_path / "scale.pt", 3)
    done = run(figure2, package, "6", "0.5", "1.5", "2.5", INTERPOOL_PREPARED=str(prepared))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["13.5"] * 6 + ["Python 3", ""]


@pytest.mark.long
def test_the_programs_inference_mode_holds_in_its_models(
    figure2: Path, prepared: Path, tmp_path: Path
) -> None:
    model = """
    import torch

    class Model:
        def __call__(self, x):
            modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled(), (x + 1).is_inference()
            return torch.tensor([float("".join(str(int(mode)) for mode in modes))])

    def make():
        return Model()
    """
    package = build_package(tmp_path / "modes.pt", {"modes.py": model}, "modes:make")
    done = run(figure2, package, "2", "1", INTERPOOL_PREPARED=str(prepared))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == ["101", "101"]


@pytest.mark.long
def test_prepared_modules_can_be_imported_there(figure2: Path, prepared: Path, tmp_path: Path) -> None:
    model = """
    import numpy, sqlite3, torch

    class Model:
        def __call__(self, x):
            return torch.from_numpy(numpy.cumsum(x.numpy()))

    def make():
        return Model()
    """
    package = build_package(
        tmp_path / "m.pt", {"cumsum.py": model}, "cumsum:make", extern=("numpy", "sqlite3")
    )
    done = run(figure2, package, "1", "1", "2", INTERPOOL_PREPARED=str(prepared))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "4"


@pytest.mark.long
def test_a_module_that_was_not_prepared_is_named(figure2: Path, prepared: Path, tmp_path: Path) -> None:
    source = "import yaml._yaml\n\nclass Model:\n    pass\n\ndef make():\n    return Model()\n"
    package = build_package(tmp_path / "n.pt", {"uses.py": source}, "uses:make", extern=("yaml", "yaml.**"))
    done = run(figure2, package, "1", "1", INTERPOOL_PREPARED=str(prepared))
    assert done.returncode == 1
    assert "was not prepared for interpreter" in done.stderr
    assert "_yaml" in done.stderr
    assert "Run `interpool prepare` again with --import" in done.stderr


@pytest.mark.long
def test_a_program_may_change_its_environment_while_interpreters_start_and_read_it(prepared: Path) -> None:
    program = linked("environment")
    for _ in range(2):  # it crashed every other time
        done = run(program, INTERPOOL_PREPARED=str(prepared))
        assert (done.returncode, done.stdout, done.stderr) == (0, "seen\n", "")


def test_without_a_prepared_cache_there_is_a_clear_error(figure2: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none.txt"
    done = run(figure2, "m.pt", "1", "1", INTERPOOL_PREPARED=str(missing))
    assert done.returncode == 1
    assert done.stderr.startswith(f"figure2: there is no prepared cache at {missing}")
    assert "Run `interpool prepare`" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda text: text.replace("interpool-prepared 2", "interpool-prepared 1"),
            "was not written by this",
        ),
        (
            lambda text: text.replace("\ninterpool\t", "\ninterpool\t9"),
            "was made by interpool 9",
        ),
        (lambda text: text + "libpython\tfirst\t/nowhere\n", 'is damaged at "libpython\tfirst\t/nowhere"'),
        (lambda text: text[: text.index("loader")], "names no loader"),
        (
            lambda text: "\n".join(line for line in text.split("\n") if not line.startswith("libpython\t2")),
            "prepares 1 interpreters, and another is wanted",
        ),
    ],
)
def test_a_prepared_file_that_is_not_right_is_refused(
    figure2: Path, prepared: Path, tmp_path: Path, change: object, complaint: str
) -> None:
    file = tmp_path / "prepared.txt"
    file.write_text(change(prepared.read_text()))  # type: ignore[operator]
    done = run(figure2, "m.pt", "1", "1", INTERPOOL_PREPARED=str(file))
    assert done.returncode == 1
    assert complaint in done.stderr
    assert str(file) in done.stderr


def test_a_pool_refuses_a_program_that_has_loaded_another_torch(
    figure2: Path, prepared: Path, tmp_path: Path
) -> None:
    """It would have two, and end as the second one registers what the first one has."""
    stock = Path(torch.__file__).parent / "lib"
    other = shutil.copy(stock / "libc10.so", tmp_path / "libc10.so")
    done = run(figure2, "m.pt", "1", "1", INTERPOOL_PREPARED=str(prepared), LD_PRELOAD=str(other))
    assert done.returncode == 1
    assert f"this program has loaded {other}, and what was prepared is for {stock}/libc10.so" in done.stderr


@pytest.mark.long
def test_a_package_that_is_missing_is_an_error_of_its_own_kind(figure2: Path, prepared: Path) -> None:
    done = run(figure2, "/no/such.pt", "1", "1", INTERPOOL_PREPARED=str(prepared))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "figure2: /no/such.pt cannot be opened: No such file or directory.\n"


def test_modules_to_prepare_must_be_installed(tmp_path: Path) -> None:
    done = run("interpool", "prepare", "--import", "no_such_module_42", "--output", tmp_path / "p.txt")
    assert done.returncode == 1
    assert "no_such_module_42 is not installed for" in done.stderr
    assert not (tmp_path / "p.txt").exists()


@pytest.mark.usefixtures("manager")
def test_the_library_works_beside_a_python_too() -> None:
    """libinterpool is one per process: what _native uses is what a C++ extension would link."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert sum("libinterpool.so" in line and " r-xp " in line for line in maps) == 1


@pytest.mark.long
def test_a_programs_own_torch_is_as_it_was_after_a_session(prepared: Path) -> None:
    done = run(linked("after_session"), INTERPOOL_PREPARED=str(prepared))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "8 4 4\n")
