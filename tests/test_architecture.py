"""The map in docs/architecture.md is the tree, and what it says of imports holds for each of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from paths import ROOT

PACKAGES = ("handler", "archiver_ext", "native")
# What Python sees of the compiled half.
COMPILED_MODULE = "native/cpp/python/"
CPP = Path("native/cpp")
# In a process of its own, with nothing but the checkout's packages to find.
PRINT_IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import grimp
graph = grimp.build_graph("interpool", cache_dir=None)
for importer in sorted(graph.modules):
    for imported in sorted(graph.find_modules_directly_imported_by(importer)):
        for detail in graph.get_import_details(importer=importer, imported=imported):
            compiled = "_native" in detail["line_contents"].partition("import")[2]
            print(importer, "interpool.native._native" if compiled else imported, detail["line_number"])
"""
_INCLUDE = re.compile(r'^#include (?:"|<(?=interpool/))([^">]+)[">]$', re.MULTILINE)
_ROW = re.compile(r"^\| `(?P<unit>[^`]+)` \|(?P<subject>[^|]+)\|(?P<imports>[^|]+)\|$", re.MULTILINE)


def the_map() -> dict[str, set[str]]:
    """Folders and files of the map, from top to bottom, and what each may import."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## The map\n")[2].partition("\n## ")[0]
    rows = list(_ROW.finditer(section))
    units = [row["unit"] for row in rows]
    assert len(units) == len(set(units))
    return {row["unit"]: set(re.findall(r"`([^`]+)`", row["imports"])) for row in rows}


def the_tree(root: Path) -> Iterator[str]:
    """Every folder of source, and every module that lies beside the folders."""
    yield "src/interpool/__init__.py"
    for package in PACKAGES:
        for path in (root / package).iterdir():
            if path.suffix == ".py":
                yield f"{package}/{path.name}"
            elif (path / "__init__.py").is_file():
                yield f"{package}/{path.name}/"
    for path in (root / CPP).iterdir():
        if any(file.suffix in {".cc", ".h"} for file in path.rglob("*")):
            yield f"{CPP}/{path.name}/"


def unit_of(module: str, units: dict[str, set[str]]) -> str:
    """The row that a module belongs to."""
    if module == "interpool.native._native":
        return COMPILED_MODULE
    path = "/".join(module.split(".")[1:3])
    found = (f"{path}/", f"{path}.py", f"{path}/__init__.py", "src/interpool/__init__.py")
    return next(unit for unit in found if unit in units)


def imports_of_modules(source: Path) -> list[tuple[str, str, str]]:
    """Every import of interpool's by interpool: importer, imported, line; those inside of functions count."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PRINT_IMPORTS, str(source)], capture_output=True, text=True, check=True
    )
    return [
        (importer, imported, line) for importer, imported, line in map(str.split, done.stdout.splitlines())
    ]


def imports_between_units(source: Path, units: dict[str, set[str]]) -> dict[tuple[str, str], list[str]]:
    """For each pair of rows, where the first imports the second."""
    found = defaultdict(list)
    for importer, imported, number in imports_of_modules(source):
        pair = unit_of(importer, units), unit_of(imported, units)
        if pair[0] != pair[1]:
            found[pair].append(f"{importer}:{number} imports {imported}")
    return found


def includes_between_units(root: Path) -> dict[tuple[str, str], list[str]]:
    """The same for C++ and #include."""
    found = defaultdict(list)
    for file in sorted((root / CPP).rglob("*")):
        if file.suffix not in {".cc", ".h"}:
            continue
        own = file.relative_to(root / CPP).parts[0]
        for name in _INCLUDE.findall(file.read_text(encoding="utf-8")):
            target = next(
                path
                for path in (file.parent / name, root / CPP / name, root / CPP / "include" / name)
                if path.is_file()
            )
            other = target.resolve().relative_to((root / CPP).resolve()).parts[0]
            if own != other:
                found[f"{CPP}/{own}/", f"{CPP}/{other}/"].append(f"{file.name} includes {name}")
    return found


@pytest.fixture(scope="module")
def used() -> dict[tuple[str, str], list[str]]:
    units = the_map()
    return {**imports_between_units(ROOT / "src", units), **includes_between_units(ROOT)}


def test_the_map_names_every_folder_and_nothing_else() -> None:
    named, there = set(the_map()), set(the_tree(ROOT))
    faces = {f"{package}/__init__.py" for package in PACKAGES}
    assert named - there == set()
    assert there - named <= faces  # those that import nothing need no row


def test_every_row_of_the_map_imports_only_rows_below_it() -> None:
    units = list(the_map())
    upward = [
        (unit, other)
        for unit, others in the_map().items()
        for other in others
        if units.index(other) <= units.index(unit)
    ]
    assert upward == []


def test_every_import_stands_in_the_map(used: dict[tuple[str, str], list[str]]) -> None:
    allowed = the_map()
    assert {pair: where for pair, where in used.items() if pair[1] not in allowed[pair[0]]} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports = defaultdict(set)
    for importer, imported, _line in imports_of_modules(ROOT / "src"):
        imports[importer].add(imported)
    TopologicalSorter(imports).prepare()  # a CycleError names the circle


def test_the_map_draws_no_arrow_that_is_not_there(used: dict[tuple[str, str], list[str]]) -> None:
    drawn = {(unit, other) for unit, others in the_map().items() for other in others}
    assert drawn - set(used) == set()


def test_an_upward_import_would_be_seen(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("cpp", "__pycache__", "*.so")
    )
    errors = tmp_path / "src/interpool/native/errors.py"
    errors.write_text(
        errors.read_text(encoding="utf-8") + "\n\ndef late():\n    import interpool.handler.cli\n"
    )
    found = imports_between_units(tmp_path / "src", the_map())
    assert ("native/errors.py", "handler/cli.py") in found


def test_every_folders_docstring_names_its_subject_and_its_importers() -> None:
    for unit in the_map():
        init = ROOT / unit / "__init__.py"
        if unit.endswith("/") and init.is_file():
            text = init.read_text(encoding="utf-8")
            assert text.startswith('"""')
            assert "import" in text.split('"""')[1], unit


def test_a_python_that_is_started_in_the_checkout_imports_what_is_installed() -> None:
    code = "import interpool.native, interpool.handler; print(interpool.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parents[1].name == "site-packages"


def test_the_links_below_src_are_the_packages() -> None:
    links = {path.name: path.resolve() for path in (ROOT / "src/interpool").iterdir() if path.is_symlink()}
    assert links == {package: ROOT / package for package in PACKAGES}
