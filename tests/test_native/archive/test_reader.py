"""The reader reads what packers write, and nothing that another reader would read differently."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from many_examples import EXAMPLES
from test_native.hostile.cases import Good, build_good
from test_native.hostile.zips import Member, zip_of
from torch.package import PackageExporter

from interpool.archiver_ext.appending import opened_to_append
from interpool.native.archive.reader import check_digests, read_manifest, read_member, read_records
from interpool.native.errors import ArchiveError

bounded = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
    database=None,
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    return build_good(tmp_path_factory.mktemp("reader"))


@pytest.fixture(scope="module")
def real(good: Good, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """As torch writes it and interpool.archiver_ext appends to it."""
    path = tmp_path_factory.mktemp("real") / "archive.ptpkg"
    with PackageExporter(path) as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", torch.nn.Linear(3, 4))
        exporter.save_text("model", "labels.txt", "cat\ndog\n" * 20)
        exporter.save_source_string("scale_model", "x = 1\n")
    with opened_to_append(path) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        sealed = Good(members, path).sealed()[-1]
        archive.writestr(zipfile.ZipInfo(str(sealed.name)), sealed.data)
    return path.read_bytes()


def read(data: bytes) -> dict[str, bytes]:
    """All members' contents, of an archive that is admitted."""
    file = io.BytesIO(data)
    records = read_records("a.ptpkg", file)
    manifest = read_manifest("a.ptpkg", file, records)
    if manifest is not None:
        check_digests("a.ptpkg", file, records, manifest)
    return {name: read_member("a.ptpkg", file, record) for name, record in records.items()}


def as_zipfile_reads(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {entry.filename.partition("/")[2]: archive.read(entry) for entry in archive.infolist()}


def as_torch_reads(data: bytes) -> dict[str, bytes]:
    reader = torch._C.PyTorchFileReader(io.BytesIO(data))
    return {name: reader.get_record(name) for name in reader.get_all_records()}


def assert_refused_or_read_alike(data: bytes, expected: dict[str, bytes] | None = None) -> None:
    refusal: ArchiveError | None = None
    try:
        found = read(data)
    except ArchiveError as error:
        refusal = error
    if refusal is not None:
        assert refusal.rule
        assert str(refusal).startswith("a.ptpkg")
        return
    assert found == as_zipfile_reads(data) == as_torch_reads(data)
    if expected is not None:
        assert found == expected


def test_archives_that_torch_writes_are_read_as_torch_and_zipfile_read_them(real: bytes) -> None:
    found = read(real)
    assert found == as_zipfile_reads(real) == as_torch_reads(real)
    assert "interpool-archive/manifest.json" in found


Change = Callable[[bytearray], None]


def _flip(position: int, bit: int) -> Change:
    def change(data: bytearray) -> None:
        data[position % len(data)] ^= 1 << bit

    return change


def _field(position: int, value: int, size: int) -> Change:
    def change(data: bytearray) -> None:
        at = position % (len(data) - size)
        data[at : at + size] = value.to_bytes(8, "little")[:size]

    return change


def _cut(start: int, length: int) -> Change:
    def change(data: bytearray) -> None:
        at = start % len(data)
        del data[at : at + length]

    return change


def _copy(source: int, target: int, length: int) -> Change:
    def change(data: bytearray) -> None:
        at = source % len(data)
        target_at = target % len(data)
        data[target_at:target_at] = data[at : at + length]

    return change


def _header(which: int, position: int, value: int) -> Change:
    """A byte of one of the zip's own records."""

    def change(data: bytearray) -> None:
        marks = [at for at in range(len(data) - 4) if data[at : at + 2] == b"PK" and data[at + 2] < 9]
        at = marks[which % len(marks)] + 4 + position if marks else 0
        if at < len(data):
            data[at] = value

    return change


place = st.integers(0, 1 << 20)
interesting = st.sampled_from([0, 1, 0xFFFF, 0xFFFFFFFF, 1 << 31, 1 << 20, (1 << 64) - 1]) | st.integers(
    0, 1 << 16
)
change = st.one_of(
    st.builds(_flip, place, st.integers(0, 7)),
    st.builds(_field, place, interesting, st.sampled_from([1, 2, 4, 8])),
    st.builds(_cut, place, st.integers(1, 4096)),
    st.builds(_copy, place, place, st.integers(1, 4096)),
    st.builds(_header, st.integers(0, 60), st.integers(0, 42), st.integers(0, 255)),
    st.builds(_header, st.integers(0, 60), st.integers(0, 42), st.integers(0, 255)),
)


@bounded
@given(changes=st.lists(change, min_size=1, max_size=4))
def test_a_changed_archive_is_refused_or_reads_as_before(real: bytes, changes: list[Change]) -> None:
    data = bytearray(real)
    for each in changes:
        each(data)
        if not data:
            return
    assert_refused_or_read_alike(bytes(data), read(real))


def test_every_bit_of_the_zips_own_records_counts_or_is_harmless(real: bytes) -> None:
    """Of those around two members, the directory's first entry and the end, one by one."""
    expected = read(real)
    directory, end = struct.unpack_from("<I", real, len(real) - 6)[0], len(real) - 22
    second = real.index(b"PK\3\4", 4)
    for start, size in ((0, 64), (second - 16, 80), (directory, 46 + 23), (end, 22)):
        for position in range(start, start + size):
            for bit in range(8):
                data = bytearray(real)
                data[position] ^= 1 << bit
                assert_refused_or_read_alike(bytes(data), expected)


header = st.dictionaries(
    st.sampled_from(["needed", "flags", "method"]), st.integers(0, 0xFFFF), max_size=1
) | st.dictionaries(
    st.sampled_from(["crc", "packed_size", "size"]), interesting.map(lambda n: n & 0xFFFFFFFF), max_size=1
)
name = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.sampled_from(
    ["a.py", "A.py", "a.py/b", "b/c.txt", "b", "..", "é", "é"]
)
member = st.builds(
    lambda name, data, deflated, described, local, central: Member(
        f"archive/{name}", data, deflated, described, local, central
    ),
    name,
    st.binary(max_size=20),
    st.booleans(),
    st.booleans(),
    header | st.just({}),
    header | st.just({}),
)


@bounded
@given(
    members=st.lists(member, max_size=4),
    end=st.dictionaries(st.sampled_from(["count", "here", "disk"]), st.integers(0, 9), max_size=1),
)
def test_all_readers_read_the_same(good: Good, members: list[Member], end: dict[str, int]) -> None:
    base = [Member("archive/.data/version", b"6\n"), Member("archive/.data/extern_modules", b"torch\n")]
    assert_refused_or_read_alike(zip_of([*base, *members], end=end))


def test_sizes_and_offsets_beyond_4_gib_are_read(tmp_path: Path) -> None:
    """In a file of which most is a hole, laid out as torch lays it out."""
    path = tmp_path / "wide.pt"
    big = (1 << 32) + 100
    name = b"archive/big.bin"
    full = 0xFFFFFFFF
    small = zip_of([Member("archive/.data/version", b"6"), Member("archive/.data/extern_modules", b"")])
    (small_directory,) = struct.unpack_from("<I", small, len(small) - 6)
    with path.open("wb") as file:
        file.write(struct.pack("<4s5H3I2H", b"PK\3\4", 45, 8, 0, 0, 0x21, 0, 0, 0, len(name), 20))
        file.write(name + struct.pack("<2H2Q", 1, 16, big, 0))
        file.seek(big, 1)
        file.write(struct.pack("<4sI2Q", b"PK\7\x08", 7, big, big))
        start = file.tell()
        file.write(small[:small_directory])
        directory = file.tell()
        wide = struct.pack("<2H2Q", 1, 16, big, big)
        fields = (0, 0, 8, 0, 0, 0x21, 7, full, full, len(name), len(wide), 0, 0, 0, 0, 0)
        file.write(struct.pack("<4s6H3I5H2I", b"PK\1\2", *fields) + name + wide)
        at = small_directory
        for _ in range(2):  # the others' entries, their offsets moved behind the big member
            entry = bytearray(small[at : at + 46 + small[at + 28]])
            at += len(entry)
            (offset,) = struct.unpack_from("<I", entry, 42)
            struct.pack_into("<H", entry, 30, 12)
            struct.pack_into("<I", entry, 42, full)
            file.write(entry + struct.pack("<2HQ", 1, 8, start + offset))
        end = file.tell()
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 3, 3, end - directory, directory))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, end - directory, full, 0))
    with path.open("rb") as file:
        records = read_records(str(path), file)
    with zipfile.ZipFile(path) as archive:
        assert [each.file_size for each in archive.infolist()] == [each.size for each in records.values()]
    assert (records["big.bin"].offset, records["big.bin"].size) == (30 + len(name) + 20, big)
    assert records[".data/version"].offset == start + 30 + len("archive/.data/version")


@pytest.mark.long
def test_a_storage_beyond_4_gib_is_read_as_torch_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "big.pt"
    big = torch.zeros((1 << 32) + 1000, dtype=torch.uint8)
    with PackageExporter(path) as exporter:
        exporter.extern(["torch", "torch.**"])
        exporter.save_pickle("m", "value.pkl", [torch.ones(3), big, torch.ones(5)])
    with path.open("rb") as file:
        records = read_records(str(path), file)
    assert [records[f".data/{n}.storage"].size for n in range(3)] == [12, (1 << 32) + 1000, 20]
    assert all(record.offset % 64 == 0 for record in records.values())
