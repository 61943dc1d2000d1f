"""Finds the hermetic archive in a TorchServe model archive: a .mar in any of its formats.

Only the member that the manifest names is extracted, into a new temporary file. So no name in the .mar is
used as a path.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import os
import shlex
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from interpool.archiver_ext.mar.one_reading import Names, check_zip, has_small_directory
from interpool.native.archive.manifest_names import RULE, require_inside
from interpool.native.archive.zip_structure import MOST_RATIO
from interpool.native.errors import ArchiveError, ManifestError, StructureError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAR_MANIFEST = "MAR-INF/MANIFEST.json"

ZIP_ERRORS: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError,
)  # fmt: skip
"""What zipfile raises when it reads a damaged or unsupported member."""

_MANIFEST_LIMIT = 1 << 20
MEMBER_LIMIT: Final = 100_000  # files in a .mar; one has a handful
_HEADERS_LIMIT = 1 << 20
_CHUNK = 1 << 20
_NO_PACKAGE = ("no-package", "no-zip")  # rules of the reader
_FREE_BYTES = 64 << 20  # bytes that may exceed the compression limit, as for constant weights


@dataclass(frozen=True)
class FoundArchive:
    """A hermetic archive, opened.

    Attributes:
        shown: its name for messages: ``m.ptpkg``, or ``m.mar (m.ptpkg in it)``.
        file: its bytes.
        path: of the file; of the temporary copy if it was inside a .mar.
        format: of the .mar: "" for none, ``zip``, ``tgz`` or ``directory``.
        mar_manifest: the .mar's own manifest; {} without a .mar.
    """

    shown: str
    file: IO[bytes]
    path: Path
    format: str
    mar_manifest: dict[str, Any]


@contextlib.contextmanager
def find_archive(path: Path) -> Iterator[FoundArchive]:
    """Open the hermetic archive at ``path``, or the one inside the .mar there.

    Args:
        path: an archive, or a .mar: zip (default, zip-store), tgz, or a no-archive directory.

    Raises:
        ArchiveError: it cannot be read, or its manifest names no archive in it.
    """
    with _find(path) as found:
        try:
            yield found
        except StructureError as error:
            if found.format and error.rule in _NO_PACKAGE:
                raise StructureError(f"{error.message} {_ordinary(path)}", error.rule) from None
            raise


def _ordinary(path: Path) -> str:
    return (
        "If this archive was made without interpool, "
        f"`interpool doctor --mar {shlex.quote(str(path))}` says whether a pool can serve it."
    )


@contextlib.contextmanager
def _find(path: Path) -> Iterator[FoundArchive]:
    if os.path.isdir(path):
        with _in_directory(path) as found:
            yield found
        return
    with _open(path, str(path)) as file:
        start = file.read(2)
        file.seek(0)
        if start == b"\x1f\x8b":
            with _in_tgz(path, file) as found:
                yield found
            return
        try:
            # A package may have a larger one; its own reader decides.
            outer = zipfile.ZipFile(file) if has_small_directory(file) else None
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
            outer = None  # the archive's reader will report the error
        if outer is not None and MAR_MANIFEST in outer.namelist():
            with _in_zip(path, file, outer) as found:
                yield found
            return
        file.seek(0)
        yield FoundArchive(str(path), file, path, "", {})


def _open(path: Path, shown: str) -> IO[bytes]:
    try:
        # O_NONBLOCK: opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ArchiveError(f"{shown}: cannot be read ({error.strerror})", "unreadable") from None
    file = open(descriptor, "rb")  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise ArchiveError(f"{shown}: is neither a file nor a model's directory", "unreadable")
    return file


# ---- the .mar's formats -----------------------------------------------------------------------


@contextlib.contextmanager
def _in_directory(path: Path) -> Iterator[FoundArchive]:
    manifest_file = path / MAR_MANIFEST
    with _plain(manifest_file, path) as file:
        text = file.read(_MANIFEST_LIMIT + 1)
    manifest = _parse(text, path)
    name = _serialized_file(manifest, path)
    with _plain(path / name, path) as file:
        yield FoundArchive(str(path / name), file, path / name, "directory", manifest)


def _plain(file: Path, model: Path) -> IO[bytes]:
    """Open a file of a no-archive directory, which must be no link."""
    if os.path.islink(file) or (file.parent != model and os.path.islink(file.parent)):
        raise StructureError(
            f"{model}: {file.relative_to(model)} is a link: what it leads to is not part of the model. "
            "Put the file itself there",
            "mar-link",
        )
    if not os.path.exists(file):
        raise ManifestError(
            f"{model}: it has no {file.relative_to(model)}: it is not a TorchServe model", "mar"
        )
    return _open(file, str(file))


@contextlib.contextmanager
def _in_zip(path: Path, file: IO[bytes], outer: zipfile.ZipFile) -> Iterator[FoundArchive]:
    names = outer.namelist()
    if len(names) > MEMBER_LIMIT:
        raise StructureError(f"{path} holds {len(names)} files; a .mar has a handful", "mar-count")
    manifest = _parse(_zip_bytes(path, outer, MAR_MANIFEST), path)
    name = _serialized_file(manifest, path)
    for wanted in (MAR_MANIFEST, name):
        if names.count(wanted) != 1:
            many = "twice" if wanted in names else "not at all"
            raise ManifestError(f"{path} holds {wanted} {many}: it names no serialized file in it", "mar")
    check_zip(path, file, outer)
    info = outer.getinfo(name)
    if stat.S_ISLNK(info.external_attr >> 16):
        raise StructureError(f"{path}: {name} is a link, not an archive", "mar-link")
    _refuse_bomb(path, name, info.compress_size, info.file_size)
    with _own_file(path, info.file_size) as inner:
        with _zip_errors(path, name), outer.open(info) as member:
            _copy(path, name, member, inner, info.file_size)
        yield FoundArchive(f"{path} ({name} in it)", inner, Path(inner.name), "zip", manifest)


def _zip_bytes(path: Path, outer: zipfile.ZipFile, name: str) -> bytes:
    with _zip_errors(path, name), outer.open(name) as member:
        return member.read(_MANIFEST_LIMIT + 1)


@contextlib.contextmanager
def _zip_errors(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except ZIP_ERRORS as error:
        raise StructureError(f"{path}: {name} in it is damaged ({error}). Copy it again", "mar") from None


@contextlib.contextmanager
def tgz_errors(path: Path) -> Iterator[None]:
    """Raise StructureError if what is read inside shows that the .tar.gz at ``path`` is damaged."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        raise StructureError(f"{path} is a damaged .tar.gz ({error}). Copy it again", "mar") from None


@contextlib.contextmanager
def _in_tgz(path: Path, file: IO[bytes]) -> Iterator[FoundArchive]:
    """Read the file twice, because torch-model-archiver writes the manifest last."""
    with contextlib.ExitStack() as stack:
        with tgz_errors(path):
            root, manifest = _tgz_manifest(path, file)
            name = _serialized_file(manifest, path)
            inner = _tgz_member(path, file, root, name, stack)
        yield FoundArchive(f"{path} ({name} in it)", inner, Path(inner.name), "tgz", manifest)


def _tgz_member(path: Path, file: IO[bytes], root: str, name: str, stack: contextlib.ExitStack) -> IO[bytes]:
    for member, inside in tgz_members(path, file):
        if _clean(member.name) != f"{root}{name}":
            continue
        if inside is None:
            raise StructureError(f"{path}: {name} is a link or a directory, not an archive", "mar-link")
        inner = stack.enter_context(_own_file(path, member.size))
        _copy(path, name, inside, inner, member.size)
        return inner
    raise ManifestError(f"{path}: its manifest names no serialized file in it ({name})", "mar")


def _tgz_manifest(path: Path, file: IO[bytes]) -> tuple[str, dict[str, Any]]:
    found = None
    for member, inside in tgz_members(path, file):  # to the end, as each name may occur once only
        name = _clean(member.name)
        root, _, rest = name.rpartition(MAR_MANIFEST)
        if not rest and name.endswith(MAR_MANIFEST) and root.count("/") <= 1 and inside is not None:
            found = found or (root, _parse(inside.read(_MANIFEST_LIMIT + 1), path))
    if found is None:
        raise ManifestError(f"{path}: it has no {MAR_MANIFEST}: it is not a TorchServe model", "mar")
    return found


def tgz_members(path: Path, file: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the members of a .tar.gz, each with its content, or None if it is no plain file.

    A content can be read until the next member is taken.

    Args:
        path: of the .tar.gz, for messages.
        file: its bytes, which are read from the start.

    Raises:
        StructureError: it has too many members, too long headers, a member whose size cannot be, or one that
            readers take for different files.
        tarfile.TarError: it is damaged, as by the other errors that ``tgz_errors`` takes.
    """
    file.seek(0)
    packed_size = os.fstat(file.fileno()).st_size
    content = _Unpacked(path, file)
    names = Names(path)
    with tarfile.open(fileobj=content, mode="r|") as members:  # type: ignore[call-overload]
        for count, member in enumerate(members, 1):
            if count > MEMBER_LIMIT:
                raise StructureError(
                    f"{path} holds more than {MEMBER_LIMIT} files; a .mar has a handful", "mar-count"
                )
            # tarfile goes to the place of the next member without asking whether the file reaches so far.
            if member.size < 0:
                raise StructureError(f"{path}: {member.name} in it has a size below 0", "mar-size")
            _refuse_bomb(path, member.name, packed_size, member.size)
            names.add(member.name, member.isdir())
            content.left = member.size + _HEADERS_LIMIT
            # The parts of a sparse file may be anywhere.
            plain = member.isreg() and not member.issparse()
            yield member, members.extractfile(member) if plain else None


class _Unpacked:
    """The content of a .tar.gz, of which tarfile would read any amount into memory as a member's headers.

    Attributes:
        left: bytes that may still be read.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.left = _HEADERS_LIMIT
        self._path = path
        self._content = gzip.GzipFile(fileobj=file)

    def read(self, size: int) -> bytes:
        """Read as a file does."""
        content = self._content.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise StructureError(f"{self._path} has longer headers than any .mar", "mar-size")
        return content


def _clean(name: str) -> str:
    return name.removeprefix("./")


# ---- shared by all formats --------------------------------------------------------------------


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    if len(text) > _MANIFEST_LIMIT:
        raise ManifestError(f"{path}: its {MAR_MANIFEST} is longer than any manifest", "mar")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: its {MAR_MANIFEST} is not JSON ({error})", "mar") from None
    if not isinstance(manifest, dict):
        raise ManifestError(f"{path}: its {MAR_MANIFEST} is not a JSON object", "mar")
    if isinstance(model := manifest.get("model"), dict):
        require_inside(model, f"{path}: {MAR_MANIFEST}", path if path.is_dir() else None)
    return manifest


def _serialized_file(manifest: dict[str, Any], path: Path) -> str:
    model = manifest.get("model")
    name = model.get("serializedFile") if isinstance(model, dict) else None
    if not isinstance(name, str) or not name:
        said = f"{path}: its {MAR_MANIFEST} names no serialized file in it. {_ordinary(path)}"
        raise ManifestError(said, "mar")
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise StructureError(f"{path}: its serialized file's name {name!r} is a path, not a name", RULE)
    return name


def _refuse_bomb(path: Path, name: str, packed_size: int, size: int) -> None:
    if size > _FREE_BYTES + MOST_RATIO * packed_size:
        raise StructureError(
            f"{path}: {name} in it would unpack from {packed_size:,} to {size:,} bytes: a zip bomb",
            "ratio",
        )


@contextlib.contextmanager
def _own_file(path: Path, size: int) -> Iterator[IO[bytes]]:
    with _storing(path):
        free = shutil.disk_usage(tempfile.gettempdir()).free
    if size > free:
        raise StructureError(
            f"{path}: the archive in it says that it has {size:,} bytes; {tempfile.gettempdir()} has room "
            f"for {free:,}. If it is really that large, set TMPDIR to a larger place",
            "mar-size",
        )
    with _storing(path):
        # It has mode 0600, and a name because the self-test opens it in another process.
        file = tempfile.NamedTemporaryFile(prefix="interpool-", suffix=".ptpkg")  # noqa: SIM115
    try:
        yield file
    finally:
        # This fails only if an earlier write, which was reported, failed.
        with contextlib.suppress(OSError):
            file.close()


@contextlib.contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Raise ArchiveError if the temporary file cannot be made or written."""
    try:
        yield
    except OSError as error:
        raise ArchiveError(
            f"{path}: the archive in it cannot be copied to a temporary file ({error}). Set TMPDIR to a "
            "place with room",
            "mar-copy",
        ) from None


def _copy(path: Path, name: str, source: IO[bytes], target: IO[bytes], size: int) -> None:
    left = size
    while chunk := source.read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            break
        with _storing(path):
            target.write(chunk)
    if left:
        raise StructureError(f"{path}: {name} in it is not of the size that it says", "mar-size")
    with _storing(path):
        target.flush()
    target.seek(0)
