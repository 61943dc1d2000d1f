"""What has private copies, of all that an interpreter may load."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interpool.native import provision
from interpool.native.errors import ProvisioningError

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = Path(str(distribution("torch").locate_file("")))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cold cache for the module."""
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERPOOL_CACHE", str(root))
        # The interposer has tests of its own; here it is as if it were not built.
        patch.setattr(provision.environment, "interposer_path", lambda: root / "none")
        yield root


@pytest.mark.parametrize("name", ["libtorch_cpu.so", "libgomp.so.1"])
def test_a_library_that_uses_no_python_stays_shared(name: str) -> None:
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
