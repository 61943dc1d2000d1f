"""A fuzzer's target: zips, manifests and pickles as an attacker writes them (atheris, libFuzzer).

``python fuzz_archives.py TARGET [libFuzzer's options] [INPUT]``, with tests/ and
tests/test_native/support on PYTHONPATH; TARGET is zip, members, manifest, pickle or all, where the
first byte chooses. What may come out is an ArchiveError, or what every reader agrees on; of
pickles any exception of Python's, so long as nothing was run, written or connected.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import torch
from test_native.hostile.cases import MANIFEST, PICKLE, build_good
from test_native.hostile.every_case import CASES
from test_native.hostile.zips import Member, zip_of
from torch.package import PackageImporter

from interpool.native.errors import ArchiveError, ManifestError

with atheris.instrument_imports(
    include=[
        "interpool.native.archive.format",
        "interpool.native.archive.typed_json",
        "interpool.native.archive.member_names",
        "interpool.native.archive.pickle_policy",
        "interpool.native.archive.reader",
        "interpool.native.archive.unpickler",
        "interpool.native.archive.zip_structure",
    ]
):
    from interpool.native.archive.format import parse_manifest
    from interpool.native.archive.reader import check_digests, read_manifest, read_member, read_records
    from interpool.native.archive.unpickler import restrict

warnings.simplefilter("ignore")
FOLDER = Path(tempfile.mkdtemp())  # below TMPDIR: whoever starts this sets and removes it
GOOD = build_good(FOLDER)


def zips(data: bytes) -> None:
    """A whole file."""
    file = io.BytesIO(data)
    try:
        records = read_records("a.ptpkg", file)
        manifest = read_manifest("a.ptpkg", file, records)
        if manifest is not None:
            check_digests("a.ptpkg", file, records, manifest)
        found = {name: read_member("a.ptpkg", file, record) for name, record in records.items()}
    except ArchiveError:
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert found == {
            entry.filename.partition("/")[2]: archive.read(entry) for entry in archive.infolist()
        }
    reader = torch._C.PyTorchFileReader(io.BytesIO(data))
    assert found == {name: reader.get_record(name) for name in reader.get_all_records()}


def members(data: bytes) -> None:
    """A zip that is put together from what the fuzzer says, checksums and all."""
    given = atheris.FuzzedDataProvider(data)
    made = [Member("archive/.data/version", b"6\n"), Member("archive/.data/extern_modules", b"torch\n")]
    for _ in range(given.ConsumeIntInRange(1, 4)):
        headers: list[dict[str, int | bytes]] = [{}, {}]
        for header in headers:
            for _ in range(given.ConsumeIntInRange(0, 2)):
                field = given.PickValueInList(
                    ["needed", "flags", "method", "crc", "packed_size", "size", "extra"]
                )
                width = 16 if field in ("needed", "flags", "method") else 32
                header[field] = (
                    given.ConsumeBytes(24)
                    if field == "extra"
                    else given.ConsumeIntInRange(0, (1 << width) - 1)
                )
        name = b"archive/" + given.PickValueInList([b"a", b"A", b"a/b", b"b.py", b"", given.ConsumeBytes(8)])
        made.append(Member(name, given.ConsumeBytes(16), given.ConsumeBool(), given.ConsumeBool(), *headers))
    zips(zip_of(made, before_end=given.ConsumeBytes(4), trailing=given.ConsumeBytes(4)))


def manifests(data: bytes) -> None:
    """A manifest's text."""
    try:
        manifest = parse_manifest(data, "a.ptpkg")
    except ManifestError:
        return
    assert parse_manifest(json.dumps(manifest), "a.ptpkg") == manifest


class _Reader:
    """The good archive, its pickle being what the fuzzer says."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.pickle = b""

    def get_record(self, name: str) -> bytes:
        data: bytes = self.pickle if name == PICKLE else self._reader.get_record(name)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


_broken: list[str] = []
_watching = False


def _watch(event: str, args: tuple[Any, ...]) -> None:
    writes = event == "open" and isinstance(args[1], str) and bool(set(args[1]) & set("wax+"))
    if _watching and (writes or event.startswith(_FORBIDDEN)):
        _broken.append(f"{event} {args!r}"[:200])


_FORBIDDEN = (
    "os.chmod", "os.exec", "os.fork", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv", "os.remove",
    "os.rename", "os.rmdir", "os.spawn", "os.startfile", "os.symlink", "os.system", "os.truncate",
    "pty.", "shutil.", "socket.", "subprocess.", "tempfile.", "urllib.", "webbrowser.", "ctypes.",
)  # fmt: skip


def _importer() -> PackageImporter:
    """Of the good archive, everything in it listed, and the module of it imported."""
    path = FOLDER / "good.ptpkg"
    good = GOOD.taking(
        "builtins:getattr", "builtins:list", "builtins:dict", "builtins:type", "collections:Counter",
        "functools:partial", "_operator:getitem", "numpy._core.multiarray:_reconstruct", "numpy:dtype",
        "numpy:ndarray", "pathlib:PosixPath", "torch._C:_VariableFunctionsClass", "copyreg:_reconstructor",
        "torch:Tensor", "torch.nn.modules.linear:Linear", "re:_compile", "types:SimpleNamespace",
    )  # fmt: skip
    path.write_bytes(good.bytes())
    importer = PackageImporter(str(path))
    importer.zip_reader = _Reader(importer.zip_reader)
    restrict(importer, good.manifest(), str(path))  # type: ignore[arg-type]
    importer.import_module("scale_model")
    return importer


def pickles() -> Callable[[bytes], None]:
    """A pickle's bytes."""
    importer = _importer()
    sys.addaudithook(_watch)
    sys.stdout = io.StringIO()  # a pickle may hold print

    def one(data: bytes) -> None:
        global _watching
        importer.zip_reader.pickle = data
        _watching = True
        try:
            importer.load_pickle("model", "model.pkl")
        except Exception:  # noqa: BLE001 (what the pickle calls may raise what it likes)
            pass
        finally:
            _watching = False
        assert not _broken, _broken
        assert not (GOOD.traces / "called").exists()

    return one


TARGETS = ("zip", "members", "manifest", "pickle")


def seeds(target: str) -> list[bytes]:
    """Good ones, and those of the ledger that are not too large."""
    archives = [GOOD.bytes(), *(case.build(GOOD) for case in CASES if "100,000" not in case.name)]
    small = [data for data in archives if len(data) < 20_000]
    if target == "all":
        return [bytes([TARGETS.index(each)]) + data for each in TARGETS for data in seeds(each)]
    if target == "zip":
        return small
    member = {"manifest": MANIFEST, "pickle": PICKLE}.get(target)
    found = []
    for data in small if member else []:
        with contextlib.suppress(zipfile.BadZipFile, KeyError, ValueError, RuntimeError):
            found.append(zipfile.ZipFile(io.BytesIO(data)).read(f"archive/{member}"))
    return found


def main() -> None:
    target = sys.argv.pop(1)
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds(target)):
        (corpus / str(number)).write_bytes(data)
    targets = {"zip": zips, "members": members, "manifest": manifests, "pickle": pickles()}

    def chosen(data: bytes) -> None:
        if data:
            targets[TARGETS[data[0] % len(TARGETS)]](data[1:])

    again = any(not each.startswith("-") for each in sys.argv[1:])  # inputs that it found earlier
    atheris.Setup([*sys.argv, *([] if again else [str(corpus)])], targets.get(target, chosen))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
