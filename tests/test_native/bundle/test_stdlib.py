"""The standard library of a bundle, as a Python would meet it."""

from __future__ import annotations

import marshal
import subprocess
import sys
import sysconfig
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from interpool.native.bundle import stdlib


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("stdlib") / "python311.zip"
    stdlib.write_zip(target)
    return target


def run(archive: Path, code: str) -> str:
    """What a Python says that has this zip, and the extension modules, and nothing else."""
    extensions = sysconfig.get_config_var("DESTSHARED")
    start = f"import sys; sys.path[:] = [{str(archive)!r}, {extensions!r}]; sys.path_importer_cache.clear()\n"
    done = subprocess.run(
        [sys.executable, "-IS", "-Wignore", "-c", start + code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout


def test_modules_are_imported_from_it(archive: Path) -> None:
    names = [
        "asyncio",
        "dataclasses",
        "json",
        "sqlite3",
        "ssl",
        "xml.dom.minidom",
        "zoneinfo",
    ]
    code = "".join(f"import {name}\n" for name in names)
    output = run(archive, f"{code}print(*(sys.modules[name].__file__ for name in {names}), sep='\\n')")
    assert all(line.startswith(f"{archive}/") for line in output.splitlines())
    assert len(output.splitlines()) == len(names)


def test_the_configuration_of_python_follows_the_prefix(archive: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        sysconfig.get_config_vars()
        # The one that this Python uses; Debian has more.
        (name,) = [f"{name}.pyc" for name in sys.modules if name.startswith("_sysconfigdata_")]
        code = marshal.loads(file.read(name)[16:])
    names: dict[str, dict[str, object]] = {}
    exec(code, names)
    variables = names["build_time_vars"]
    assert variables["prefix"] == sys.prefix
    assert variables["VERSION"] == sysconfig.get_config_var("VERSION")
    assert isinstance(variables["SIZEOF_LONG"], int)


def test_extension_modules_come_but_for_tests_and_what_brings_the_gpl(tmp_path: Path) -> None:
    stdlib.copy_extensions(tmp_path / "lib-dynload")
    names = {path.name.partition(".")[0] for path in (tmp_path / "lib-dynload").iterdir()}
    assert {"_ssl", "math", "zlib"} - {*sys.builtin_module_names} <= names
    suffixes = {f".{path.name.partition('.')[2]}" for path in (tmp_path / "lib-dynload").iterdir()}
    assert suffixes <= {*EXTENSION_SUFFIXES}
    assert not [name for name in names if name.startswith(("_test", "readline", "_gdbm"))]
