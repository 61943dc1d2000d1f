"""Libraries of a bundle, compiled on the spot: each finds there what it found where it came from."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interpool.native.bundle.libraries import bring_needed
from interpool.native.provision.elf import DT_RPATH, DT_RUNPATH, SharedObject

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")


def build(target: Path, *flags: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-o", str(target), "-x", "c", "-", "-x", "none"]
    command += [f"-Wl,-soname,{target.name}", "-Wl,--no-as-needed", *flags]
    name = target.name.partition(".")[0]
    subprocess.run(command, input=f"int {name}(void) {{ return 1; }}", text=True, check=True)
    return target


def strings(path: Path, tag: int) -> list[str]:
    with SharedObject(path) as library:
        return library.strings_of(tag)


@dataclass
class Tree:
    """A bundle's folders, and a system beside them, whose libraries' searches are absolute."""

    system: Path
    root: Path
    sources: dict[Path, Path] = field(default_factory=dict)

    @property
    def beside(self) -> Path:
        return self.root / "python/lib"

    def add(self, name: str, library: Path) -> Path:
        final = self.root / name
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, final)
        self.sources[final] = library
        return final

    def bring(self) -> dict[str, Path]:
        return bring_needed(self.root, self.sources, self.beside, self.root / "torch/lib")

    def loads(self, path: Path) -> str:
        """What the dynamic linker says once the system and the bundle's first place are gone."""
        moved = self.root.with_name("moved")
        self.root.rename(moved)
        self.system.rename(self.system.with_name("gone"))
        done = subprocess.run(
            ["ldd", str(moved / path.relative_to(self.root))], capture_output=True, text=True
        )
        return done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "system", tmp_path / "bundle")
    made.beside.mkdir(parents=True)
    return made


def test_a_library_of_the_system_comes_with_all_that_it_needs(tree: Tree) -> None:
    inner = build(tree.system / "libinner.so.3")
    outer = build(tree.system / "libouter.so", str(inner), f"-Wl,-rpath,{tree.system}")
    extension = build(tree.system / "ext.so", str(outer), f"-Wl,-rpath,{tree.system}")
    final = tree.add("python/packages/ext.so", extension)
    assert list(tree.bring()) == ["libinner.so.3", "libouter.so"]
    assert strings(final, DT_RUNPATH) == ["$ORIGIN/../lib"]
    assert strings(tree.beside / "libouter.so", DT_RUNPATH) == ["$ORIGIN"]
    output = tree.loads(final)
    assert "not found" not in output
    assert "moved/python/packages/../lib/libouter.so" in output


def test_a_wheels_own_searches_stay_and_lead_nowhere_else(tree: Tree) -> None:
    helper = build(tree.system / "p.libs/libhelper.so")
    flags = (str(helper), "-Wl,-rpath,$ORIGIN/../p.libs:$ORIGIN/../../../..", "-Wl,--disable-new-dtags")
    final = tree.add("site/p/ext.so", build(tree.system / "p/ext.so", *flags))
    tree.add("site/p.libs/libhelper.so", helper)
    assert tree.bring() == {}
    assert strings(final, DT_RPATH) == ["$ORIGIN/../p.libs"]
    assert strings(final, DT_RUNPATH) == []
    assert "not found" not in tree.loads(final)
