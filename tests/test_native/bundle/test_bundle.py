"""A bundle, moved, in a root that holds it, a C++ program and the C library: no Python anywhere."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from archives import build_package
from compile import build
from interpool_testing import run_beside
from paths import ROOT

import interpool.native
from interpool.native.bundle.layout import Layout
from interpool.native.provision.elf import DT_NEEDED, DT_RPATH, DT_RUNPATH, SharedObject
from interpool.native.provision.system_libraries import system_library

pytestmark = pytest.mark.long

NATIVE = Path(str(interpool.native.__file__)).parent
# What a C++ program finds on every system.
OF_THE_SYSTEM = (
    "ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
    "libutil.so.1", "libresolv.so.2", "libstdc++.so.6", "libgcc_s.so.1",
)  # fmt: skip
# In a namespace of its own: what is mounted there goes with it.
ENTER = """
set -e
mount --rbind /proc "$1/proc"
for device in null urandom; do mount --bind "/dev/$device" "$1/dev/$device"; done
mount --bind "$2" "$1/srv/b"
mount -o remount,ro,bind "$1/srv/b"
root="$1"
shift 2
exec chroot "$root" "$@"
"""


run = functools.partial(run_beside, timeout=600)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for two interpreters, which has been moved since it was made."""
    made = tmp_path_factory.mktemp("made") / "bundle"
    done = run("interpool", "prepare", "--slots", "2", "--import", "yaml", "--bundle", made)
    said = f"interpool: making the bundle {made} for 2 interpreters\n"
    assert (done.returncode, done.stderr) == (0, said)
    assert re.fullmatch(rf"{made}: \d+ copies for 2 interpreters, \d+ MB in all\n", done.stdout)
    assert list(made.parent.iterdir()) == [made]
    return made.rename(tmp_path_factory.mktemp("moved") / "b")


@pytest.fixture(scope="module")
def figure2() -> Path:
    """The program of the documentation, linked so that it looks for the bundle beside its own folder."""
    torch_lib = Layout(Path("/b")).torch_libraries.relative_to("/")
    options = (
        f"-I{NATIVE / 'include'}", f"-L{NATIVE / 'lib'}", "-linterpool", "-pthread",
        f"-Wl,-rpath,$ORIGIN/../b/lib:$ORIGIN/../{torch_lib}",
    )  # fmt: skip
    return build(
        ROOT / "native/examples/figure2/main.cc", "figure2", with_torch=True, options=options, program=True
    )


@dataclass
class Machine:
    """A root folder without a Python."""

    root: Path
    bundle: Path

    def command(self, *arguments: str) -> list[str]:
        unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
        return [*unshare, "sh", "-c", ENTER, "sh", str(self.root), str(self.bundle), *arguments]

    def run(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            self.command(*arguments), env=environment or {}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def ask(self, model: Path, numbers: Sequence[float], **environment: str) -> list[float]:
        """What both interpreters answer to the numbers: the sums of what they give."""
        shutil.copyfile(model, self.root / "srv/model.pt")
        command = ("/srv/bin/figure2", "/srv/model.pt", "6", *map(str, numbers))
        *answers, version = self.run(*command, environment=environment).splitlines()
        assert version == "Python 3"
        assert len(answers) == 6
        return [float(answer) for answer in answers]


@pytest.fixture(scope="module")
def machine(bundle: Path, figure2: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    root = tmp_path_factory.mktemp("root")
    for folder in ("proc", "dev", "tmp", "srv/bin", "srv/b"):
        (root / folder).mkdir(parents=True)
    for device in ("null", "urandom"):
        (root / "dev" / device).touch()
    for name in OF_THE_SYSTEM:
        library = system_library(name)
        assert library, name
        for place in {library, f"/lib64/{name}"} if name.startswith("ld-") else {library}:
            (root / place[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(library), root / place[1:])
    shutil.copy(figure2, root / "srv/bin/figure2")
    there = Machine(root, bundle)
    tried = subprocess.run(there.command("/srv/bin/figure2"), capture_output=True, text=True, env={})
    if tried.returncode != 2:  # it says how it is used
        pytest.skip(f"no root of its own can be had here: {tried.stderr.strip()}")
    for folder in (root, bundle):
        programs = [path for path in folder.rglob("python*") if path.is_file() and os.access(path, os.X_OK)]
        assert [path for path in programs if ".so" not in path.name] == []
    return there


def test_a_program_with_a_bundle_answers_as_plain_torch_does(machine: Machine, tmp_path: Path) -> None:
    source = """
    import numpy, torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(7)
            self.layers = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

        def forward(self, x):
            return self.layers(torch.from_numpy(numpy.cumsum(x.numpy())))

    def make():
        return Model()
    """
    model = build_package(
        tmp_path / "m.pt", {"bundled_net.py": source}, "bundled_net:make", extern=("numpy",)
    )
    torch.manual_seed(7)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    numbers = [0.5, -1.5, 2.5]
    expected = layers(torch.from_numpy(np.cumsum(np.array(numbers, np.float32)))).sum().item()
    assert machine.ask(model, numbers) == [pytest.approx(expected, rel=1e-4)] * 6


def in_model(path: Path, body: str) -> Path:
    """A model that runs these lines when it is called, and answers 1."""
    imports = [node for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Import)]
    tops = {alias.name.partition(".")[0] for node in imports for alias in node.names}
    extern = tuple(pattern for top in tops for pattern in (top, f"{top}.**"))
    source = "import torch\n\nclass Model:\n    def __call__(self, x):\n"
    source += "".join(f"        {line}\n" for line in body.strip().splitlines())
    source += "        return torch.ones(1)\n\ndef make():\n    return Model()\n"
    return build_package(path, {"bundled_lines.py": source}, "bundled_lines:make", extern=extern)


BODIES = {
    "packages that were named, and what these bring": """
import yaml
assert yaml.__with_libyaml__ and yaml.safe_load("a: [1]") == {"a": [1]}
""",
    "the standard library, with what was the system's": """
import asyncio, bz2, ctypes, curses, decimal, json, lzma, multiprocessing, sqlite3, ssl, uuid, zlib, zoneinfo
assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
assert zlib.decompress(zlib.compress(b"a")) == b"a"
assert ssl.OPENSSL_VERSION
""",
    "its own folders, and no others": """
import os, sys, sysconfig
assert sys.prefix == sys.exec_prefix == "/srv/b/python"
assert all(entry.startswith("/srv/b/python/lib/") for entry in sys.path), sys.path
assert sysconfig.get_config_var("LIBDIR").startswith("/srv/b/python"), sysconfig.get_config_var("LIBDIR")
files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
outside = [file for file in files if os.path.isabs(file) and not file.startswith("/srv/b/")]
assert not outside, outside
""",
    "torch's lean imports, from the first interpreter on": """
import sys
deferred = sum(type(module).__name__ == "_DeferredModule" for module in list(sys.modules.values()))
assert deferred > 300, deferred
""",
    "what a lean import of torch leaves for later": """
assert torch.nn.functional.celu(torch.ones(2, 3, device="meta")).shape == (2, 3)
""",
    "sources of torch's, for TorchScript": """
script = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
assert script(torch.zeros(2)).shape == (2,)
""",
    "versions of what is in it": """
import importlib.metadata, os
assert importlib.metadata.version("torch") == torch.__version__
assert os.path.exists(importlib.metadata.distribution("sympy").locate_file("sympy/__init__.py"))
""",
    "no Python to start": """
import subprocess, sys
try:
    subprocess.run([sys.executable, "-c", ""])
except FileNotFoundError as error:
    assert error.filename.startswith("/srv/b/python/bin/python3"), error
else:
    raise AssertionError
""",
}


@pytest.mark.parametrize("what", BODIES)
def test_an_interpreter_has(machine: Machine, tmp_path: Path, what: str) -> None:
    assert machine.ask(in_model(tmp_path / "m.pt", BODIES[what]), [1.0]) == [1.0] * 6


def test_variables_for_other_pythons_do_not_reach_it(machine: Machine, tmp_path: Path) -> None:
    elsewhere = {"PYTHONHOME": "/usr", "PYTHONPATH": "/tmp", "HOME": "/tmp"}
    model = in_model(tmp_path / "m.pt", BODIES["its own folders, and no others"])
    assert machine.ask(model, [1.0], **elsewhere) == [1.0] * 6


def test_several_processes_use_it_at_once(machine: Machine, tmp_path: Path) -> None:
    shutil.copyfile(in_model(tmp_path / "m.pt", "pass"), machine.root / "srv/several.pt")
    command = machine.command("/srv/bin/figure2", "/srv/several.pt", "2", "1")
    running = [
        subprocess.Popen(command, env={}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in running]
    assert outputs == [("1\n1\nPython 3\n", "")] * 2


def test_a_bundle_names_no_place_outside_of_it(bundle: Path) -> None:
    lines = (bundle / "prepared.txt").read_text().splitlines()
    fields = [field for line in lines for field in line.split("\t")]
    assert [field for field in fields if field.startswith("/") or ".." in field] == []
    for path in sorted(bundle.rglob("*")):
        assert not path.is_symlink()
        if not path.is_file() or path.is_relative_to(bundle / "copies/files"):
            continue  # what slots' copies were made from, which no program loads
        with open(path, "rb") as file:
            is_elf = file.read(4) == b"\x7fELF"
        if is_elf and ".so" in path.name:
            with SharedObject(path) as library:
                search = ":".join(library.strings_of(DT_RPATH) + library.strings_of(DT_RUNPATH))
                assert all("/" not in name for name in library.strings_of(DT_NEEDED)), path
            for entry in filter(None, search.split(":")):
                assert entry.startswith("$ORIGIN"), (path, search)
                place = Path(os.path.normpath(entry.replace("$ORIGIN", str(path.parent))))
                assert place.is_relative_to(bundle), (path, search)
        elif path.suffix in {".pyc", ".json", ".zip", ".txt"}:
            content = path.read_bytes()
            assert os.fsencode(sys.prefix) not in content, path
            assert b"/.bundle-" not in content, path  # where it was made


def test_a_bundle_lists_its_contents(bundle: Path) -> None:
    parts = json.loads((bundle / "contents.json").read_text())
    assert parts["interpreters"] == 2
    assert parts["distributions"]["torch"] == torch.__version__
    assert {"numpy", "pyyaml", "sympy"} <= parts["distributions"].keys()
    (ffi,) = [name for name in parts["libraries_of_the_system"] if name.startswith("libffi")]
    (text,) = parts["libraries_of_the_system"][ffi]
    assert "Anthony Green" in (bundle / text).read_text()
    assert "PYTHON SOFTWARE FOUNDATION" in (bundle / "licenses/python.txt").read_text()
    for name in ("torch", "numpy", "interpool"):
        (info,) = Layout(bundle).packages.glob(f"{name}-*.dist-info")
        assert [path for path in info.rglob("*") if "LICENSE" in path.name], name


def test_a_bundle_of_another_interpool_is_refused(bundle: Path, figure2: Path, tmp_path: Path) -> None:
    text = (bundle / "prepared.txt").read_text()
    (tmp_path / "prepared.txt").write_text(re.sub(r"\ninterpool\t[\d.]+\n", "\ninterpool\t0.0.7\n", text))
    libraries = f"{NATIVE / 'lib'}:{Layout(bundle).torch_libraries}"
    done = run(figure2, "m.pt", "1", "1", INTERPOOL_PREPARED=str(tmp_path), LD_LIBRARY_PATH=libraries)
    assert done.returncode == 1
    assert f"{tmp_path}/prepared.txt was made by interpool 0.0.7, and this program has loaded" in done.stderr


def test_a_bundle_refuses_a_program_that_has_loaded_another_torch(bundle: Path, figure2: Path) -> None:
    other = Path(torch.__file__).parent / "lib"
    libraries = f"{bundle / 'lib'}:{other}"
    done = run(figure2, "m.pt", "1", "1", LD_LIBRARY_PATH=libraries)
    assert done.returncode == 1
    assert f"this program has loaded {other}/libc10.so, and what was prepared is for {bundle}" in done.stderr


def test_a_bundle_that_lacks_a_file_is_refused_with_its_folder(
    bundle: Path, figure2: Path, tmp_path: Path
) -> None:
    shutil.copyfile(bundle / "prepared.txt", tmp_path / "prepared.txt")
    libraries = f"{bundle / 'lib'}:{Layout(bundle).torch_libraries}"
    done = run(figure2, "m.pt", "1", "1", INTERPOOL_PREPARED=str(tmp_path), LD_LIBRARY_PATH=libraries)
    assert done.returncode == 1
    assert f"figure2: {tmp_path}/" in done.stderr
