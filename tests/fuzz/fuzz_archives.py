"""A fuzzer's target: zips and manifests as an attacker writes them (atheris, libFuzzer).

``python fuzz_archives.py TARGET [libFuzzer's options] [INPUT]``, with tests/ and
tests/test_native/support on PYTHONPATH; TARGET is zip, members, manifest or all, where the
first byte chooses. What may come out is an ArchiveError, or what every reader agrees on.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import atheris
import torch
from test_native.hostile.cases import MANIFEST, build_good
from test_native.hostile.every_case import CASES
from test_native.hostile.zips import Member, zip_of

from interpool.native.errors import ArchiveError, ManifestError

with atheris.instrument_imports(
    include=[
        "interpool.native.archive.format",
        "interpool.native.archive.typed_json",
        "interpool.native.archive.member_names",
        "interpool.native.archive.reader",
        "interpool.native.archive.zip_structure",
    ]
):
    from interpool.native.archive.format import parse_manifest
    from interpool.native.archive.reader import check_digests, read_manifest, read_member, read_records

warnings.simplefilter("ignore")
FOLDER = Path(tempfile.mkdtemp())  # below TMPDIR, which the caller sets and removes
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


TARGETS = ("zip", "members", "manifest")


def seeds(target: str) -> list[bytes]:
    """Good ones, and those of the ledger that are not too large."""
    archives = [GOOD.bytes(), *(case.build(GOOD) for case in CASES if "100,000" not in case.name)]
    small = [data for data in archives if len(data) < 20_000]
    if target == "all":
        return [bytes([TARGETS.index(each)]) + data for each in TARGETS for data in seeds(each)]
    if target == "zip":
        return small
    member = MANIFEST if target == "manifest" else ""
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
    targets = {"zip": zips, "members": members, "manifest": manifests}

    def chosen(data: bytes) -> None:
        if data:
            targets[TARGETS[data[0] % len(TARGETS)]](data[1:])

    again = any(not each.startswith("-") for each in sys.argv[1:])  # inputs that it found earlier
    atheris.Setup([*sys.argv, *([] if again else [str(corpus)])], targets.get(target, chosen))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
