"""Private copies of the real libraries: what is private, and how its copies differ."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interpool.native import provision
from interpool.native.errors import ProvisioningError

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = Path(str(distribution("torch").locate_file("")))
TORCH = str(next(SITE.glob("torch/_C.cpython-*.so")))
NUMPY = str(next(SITE.glob("numpy/_core/_multiarray_umath.*.so")))
SCIPY = str(next(SITE.glob("scipy/linalg/_fblas.*.so")))


@dataclass(frozen=True)
class Dynamic:
    """What binutils, not the code under test, say of a library."""

    soname: str
    needed: list[str]
    rpath: str
    runpath: str
    symbols: str


def readelf(path: str) -> Dynamic:
    tags = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True)
    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True
    )
    assert not tags.stderr + symbols.stderr

    def values(tag: str) -> list[str]:
        return re.findall(rf"\({tag}\).*\[(.*)\]", tags.stdout)

    return Dynamic(
        "".join(values("SONAME")),
        values("NEEDED"),
        "".join(values("RPATH")),
        "".join(values("RUNPATH")),
        symbols.stdout,
    )


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cold cache for the module: making torch's templates takes a second."""
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERPOOL_CACHE", str(root))
        # The interposer has tests of its own; here it is as if it were not built.
        patch.setattr(provision.environment, "interposer_path", lambda: root / "none")
        yield root


def test_libpython_copy_has_only_prefixed_names() -> None:
    copy = provision.libpython_copy(3)
    found = readelf(copy)
    assert os.path.basename(copy) == provision.libpython_path().name
    assert found.soname.startswith("ipslot0003-")
    assert " ip_Py_GetVersion" in found.symbols
    assert " ip__PyRuntime" in found.symbols
    assert not re.search(r" _?Py\w+$", found.symbols, re.MULTILINE)


def test_torch_needs_a_private_libtorch_python() -> None:
    libpython, libtorch_python, torch = provision.private_copy(TORCH, 12)
    assert libpython == provision.libpython_copy(12)
    assert os.path.basename(libtorch_python) == "libtorch_python.so"
    assert os.path.basename(torch) == os.path.basename(TORCH)
    found = readelf(torch)
    assert found.needed[:2] == [readelf(libpython).soname, readelf(libtorch_python).soname]
    assert found.soname.startswith("ipslot0012-")
    assert "PyInit__C" in found.symbols


def test_libtorch_python_shares_libtorch_and_keeps_no_unique_symbol() -> None:
    original = str(SITE / "torch/lib/libtorch_python.so")
    before, after = readelf(original), readelf(provision.private_copy(original, 0)[-1])
    assert after.needed[1:] == before.needed
    # A CUDA build has those of its other libraries as well.
    assert str(SITE / "torch/lib") in after.rpath.split(":")
    assert after.runpath == ""
    assert " UNIQUE " in before.symbols
    assert " UNIQUE " not in after.symbols
    imports = re.compile(r" UND _?Py\w+", re.MULTILINE)
    assert len(imports.findall(before.symbols)) > 300
    assert not imports.findall(after.symbols)


def test_an_extension_reaches_its_wheels_libraries_through_rpath() -> None:
    for original, libraries in ((NUMPY, "numpy.libs"), (SCIPY, "scipy.libs")):
        _, copy = provision.private_copy(original, 1)
        found = readelf(copy)
        assert found.needed[0].startswith("ipslot0001-")
        assert found.rpath == str(SITE / libraries)
        assert any(name.startswith("libscipy_openblas") for name in found.needed)
        assert "PyInit_" in found.symbols


@pytest.mark.parametrize("name", ["libtorch_cpu.so", "libgomp.so.1"])
def test_what_uses_no_python_stays_shared(name: str) -> None:
    path = str(SITE / "torch/lib" / name)
    assert provision.private_copy(path, 0) == [path]


def test_every_name_and_file_of_this_libpython_means_the_slots_own(tmp_path: Path) -> None:
    file = tmp_path / provision.libpython_path().name
    file.touch()
    for meant in (str(provision.libpython_path()), file.name, "libpython3.so", str(file)):
        assert provision.private_copy(meant, 7) == [provision.libpython_copy(7)]
    with pytest.raises(ProvisioningError, match="cannot read"):
        provision.private_copy(str(tmp_path / "none" / file.name), 7)


def test_another_pythons_libpython_is_refused() -> None:
    with pytest.raises(
        ProvisioningError, match=r"libpython3\.9\.so\.1\.0 is of another Python than this one"
    ):
        provision.private_copy("libpython3.9.so.1.0", 0)
