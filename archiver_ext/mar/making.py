"""Wraps a hermetic archive in a TorchServe archive (.mar), through torch-model-archiver.

torch-model-archiver collects files in the system's temporary directory, in a subdirectory with the model's
name, which it deletes first, and writes its output in place. This module redirects both to a private
directory, so that concurrent runs do not conflict and no incomplete .mar is visible.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.mar.opening import MarFormat, open_archive
from interpool.archiver_ext.mar.reading import MAR_MANIFEST
from interpool.archiver_ext.workdir import refuse_special_file, workdir_for
from interpool.native.archive.bounded import read_yaml
from interpool.native.archive.reader import check_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SUFFIXES: dict[MarFormat, str] = {"default": ".mar", "zip-store": ".mar", "tgz": ".tar.gz", "no-archive": ""}
FORMATS: tuple[MarFormat, ...] = get_args(MarFormat)
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # those that TorchServe takes

# tempfile's default directory is global in the process.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class MarRequest:
    """The contents of a .mar; names are those of torch-model-archiver's flags.

    Attributes:
        package: the hermetic archive.
        handler: the handler's file, or ``file:function``.
        model_name: default: the package's file name without its suffix.
        version: of the model.
        export_path: an existing directory for the output.
        archive_format: default ``zip-store``: compression does not shrink weights, and TorchServe unpacks
            stored files faster.
        extra_files: paths, wildcards or directories; a directory's content is added.
        model_file: a Python file.
        requirements_file: for pip, on servers with install_py_dep_per_model.
        config_file: model-config.yaml.
        runtime: TorchServe's name of the language.
        force: replace existing output.
    """

    package: Path
    handler: str
    model_name: str = ""
    version: str = "1.0"
    export_path: Path = Path()
    archive_format: MarFormat = "zip-store"
    extra_files: tuple[str, ...] = ()
    model_file: Path | None = None
    requirements_file: Path | None = None
    config_file: Path | None = None
    runtime: str = "python"
    force: bool = False


@dataclass(frozen=True)
class MarReport:
    """A finished .mar.

    Attributes:
        output: the .mar, the .tar.gz or the directory.
        model_name: the name under which it registers.
        version: of the model.
        archive_format: of the output.
        size: in bytes.
        seconds: wall time of checking and of wrapping.
        warnings: messages for the user.
    """

    output: Path
    model_name: str
    version: str
    archive_format: MarFormat
    size: int
    seconds: dict[str, float]
    warnings: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The ``url`` of TorchServe's registration if the output is in the model store."""
        return self.output.name

    def as_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        return {**asdict(self), "output": str(self.output), "url": self.url}


def make_mar(request: MarRequest, check_config: Callable[[Path, str], None] | None = None) -> MarReport:
    """Check a hermetic archive, and wrap it for TorchServe.

    The output appears under its name only when it is complete.

    Args:
        request: the contents of the .mar.
        check_config: called with the configuration file, if any, after it was parsed as YAML. It raises
            InterpoolError if the server would refuse the settings.

    Raises:
        ArchiveError: the archive is damaged, or is no archive.
        PackError: it cannot be wrapped as requested.
        InterpoolError: raised by check_config.
    """
    started = time.monotonic()
    name = request.model_name or request.package.stem
    target = request.export_path / f"{name}{_SUFFIXES[request.archive_format]}"
    warnings = _check_request(request, name, target)
    if request.config_file is not None and check_config is not None:
        check_config(request.config_file, str(request.config_file))
    with open_archive(request.package) as opened:
        if opened.wrapping is not None:
            raise PackError(
                f"{request.package} is a TorchServe archive already; give the package that is in it"
            )
        check_digests(str(request.package), opened.file, opened.records, opened.manifest)
    checked = time.monotonic()
    real = Path(os.path.realpath(target))  # keep a symbolic link
    with workdir_for(real) as workdir:
        made = _archived(request, name, workdir)
        size = sum(file.stat().st_size for file in (made.rglob("*") if made.is_dir() else [made]))
        _put(made, real, workdir)
    return MarReport(
        output=target.absolute(),
        model_name=name,
        version=request.version,
        archive_format=request.archive_format,
        size=size,
        seconds={"check": checked - started, "archive": time.monotonic() - checked},
        warnings=warnings,
    )


def _check_request(request: MarRequest, name: str, target: Path) -> list[str]:
    """Refuse requests for which torch-model-archiver would fail, or which it would ignore silently."""
    if not _MODEL_NAME.fullmatch(name):
        raise PackError(
            f"{name!r} cannot be the name of a model in TorchServe. Give one with --model-name, of letters, "
            "digits, '_', '-' and '.', that begins with a letter or a digit"
        )
    if not request.export_path.is_dir():
        raise PackError(f"{request.export_path} is not a directory; make it, or give another --export-path")
    if os.path.lexists(target) and not request.force:
        raise PackError(f"{target} exists already; give --force to replace it, or another --model-name")
    if os.path.lexists(target) and target.is_dir() != (request.archive_format == "no-archive"):
        there = "a directory" if target.is_dir() else "a file"
        raise PackError(f"{target} is {there}, and --force replaces like by like; remove it yourself")
    if target.is_dir() and os.listdir(target) and not (target / MAR_MANIFEST).is_file():
        raise PackError(
            f"{target} is a directory, and no model's: it has no {MAR_MANIFEST}. --force replaces "
            "models only; give another --export-path or --model-name"
        )
    if request.archive_format != "no-archive":
        refuse_special_file(target, "remove it yourself, or give another --model-name")
    for flag, file in _named_files(request).items():
        if not file.is_file():
            raise PackError(f"--{flag} {file}: there is no such file")
    if request.config_file is not None:
        _check_yaml(request.config_file)
    return _check_names(request)


def _named_files(request: MarRequest) -> dict[str, Path]:
    handler = request.handler if ".py" in request.handler else f"{request.handler.partition(':')[0]}.py"
    files = {
        "handler": Path(handler) if _is_own_file(request) else None,
        "model-file": request.model_file,
        "requirements-file": request.requirements_file,
        "config-file": request.config_file,
    }
    return {flag: file for flag, file in files.items() if file is not None}


def _is_own_file(request: MarRequest) -> bool:
    """Return whether the handler is a Python file, not the name of one of TorchServe's handlers."""
    from model_archiver.model_packaging_utils import model_handlers

    return request.runtime != "LSP" and request.handler not in model_handlers


def _check_yaml(file: Path) -> None:
    try:
        settings = read_yaml(file)
    except (OSError, ValueError) as error:
        raise PackError(f"--config-file {file} cannot be read as YAML: {error}") from None
    if not isinstance(settings, dict):
        raise PackError(f"--config-file {file} must hold settings by name, such as `batchSize: 4`")


def _check_names(request: MarRequest) -> list[str]:
    """Refuse equal names: all files go into one directory, where the last one would win."""
    taken = {file.name: f"--{flag} {file}" for flag, file in _named_files(request).items()}
    warnings = []
    sources = [(request.package.name, str(request.package))]
    for pattern in request.extra_files:
        # The same test as in torch-model-archiver.
        wildcard = any(mark in pattern for mark in "*?") or ("[" in pattern and "]" in pattern)
        if not wildcard and not Path(pattern).exists():
            raise PackError(f"--extra-files {pattern}: there is no such file")
        found = sorted(glob.glob(pattern))
        if not found:
            warnings.append(f"--extra-files {pattern} matches no file")
        for path in found:
            names = os.listdir(path) if os.path.isdir(path) else [os.path.basename(path)]
            sources += [(name, f"--extra-files {path}") for name in names]
    taken[MAR_MANIFEST.partition("/")[0]] = "TorchServe's own directory"
    for name, source in sources:
        if name in taken:
            raise PackError(f"{source} and {taken[name]} would both become {name} in the model's directory")
        taken[name] = source
    return warnings


def _archived(request: MarRequest, name: str, workdir: Path) -> Path:
    from model_archiver.model_archiver_config import ModelArchiverConfig
    from model_archiver.model_archiver_error import ModelArchiverError
    from model_archiver.model_packaging import generate_model_archive

    out = workdir / "out"
    out.mkdir()
    config = ModelArchiverConfig(
        model_name=name,
        handler=request.handler,
        version=request.version,
        serialized_file=str(request.package),
        model_file=_text(request.model_file),
        extra_files=",".join(request.extra_files) or None,
        runtime=request.runtime,
        export_path=str(out),
        archive_format=request.archive_format,
        requirements_file=_text(request.requirements_file),
        config_file=_text(request.config_file),
    )
    with _temporary_files_in(workdir), _quiet():
        try:
            generate_model_archive(config)
        except (ModelArchiverError, OSError, ValueError, shutil.Error) as error:
            said = " ".join(str(error).split())
            raise PackError(f"torch-model-archiver cannot wrap {request.package}: {said}") from None
    return out / f"{name}{_SUFFIXES[request.archive_format]}"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


@contextlib.contextmanager
def _temporary_files_in(workdir: Path) -> Iterator[None]:
    directory = workdir / "tmp"
    directory.mkdir()
    with _one_at_a_time:
        before, tempfile.tempdir = tempfile.tempdir, str(directory)
        try:
            yield
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress its log, which repeats its errors and would configure the caller's logging."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _put(made: Path, target: Path, workdir: Path) -> None:
    old = workdir / "old"
    if made.is_dir() and target.exists():
        os.replace(target, old)  # rename cannot replace a directory that is not empty
    try:
        os.replace(made, target)
    except OSError as error:
        if old.exists():
            os.replace(old, target)
        raise PackError(f"cannot write {target}: {error}") from None
