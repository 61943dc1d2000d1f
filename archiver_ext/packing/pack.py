"""Packs the object of a SPEC into a hermetic archive that has been loaded and has answered, and plans it.

This module imports neither torch nor the user's code, which run in child processes.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, Protocol

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.attempts import build_and_try
from interpool.archiver_ext.packing.jobs import ARCHIVE_NAME
from interpool.archiver_ext.packing.options import PackKeywords
from interpool.archiver_ext.packing.reports import PackReport, PlanReport
from interpool.archiver_ext.workdir import PLANNING, refuse_special_file, workdir_for

Given = ParamSpec("Given")


class _Pack(Protocol[Given]):
    def __call__(self, spec: str, output: Path, *args: Given.args, **kwargs: Given.kwargs) -> PackReport: ...


def _taking(keywords: Callable[Given, PackKeywords]) -> _Pack[Given]:
    """Return ``pack``, with the keyword arguments that PackKeywords declares, also for ``help(pack)``."""

    def pack(spec: str, output: Path, *args: Given.args, **kwargs: Given.kwargs) -> PackReport:
        """Pack the object that a SPEC names into a hermetic archive.

        The archive appears under its name only after a new process has loaded it and answered its example
        inputs. A failure leaves a previous file unchanged.

        Args:
            spec: ``package.module:name``; a function is called, another object is packed.
            output: the archive to write.
            args: none; each option is a keyword argument.
            kwargs: the options, which PackKeywords describes. ``root`` is the project's directory, ``inputs``
                example inputs; ``intern``, ``extern``, ``mock`` and ``deny`` are globs of modules, ``data``
                globs of files. ``rtol`` and ``atol`` are tolerances of the self-test. ``serving`` says how it
                is served, and ``serve_check`` whether example inputs must be answered as requests.
                ``plan`` has decisions to follow, and ``progress`` is called before each step.

        Raises:
            TypeError: an argument has another name.
            PackError: an option is invalid, the object cannot be packed, or its archive does not load or does
                not answer; the message says what to do.
        """
        given = keywords(*args, **kwargs)
        target = Path(output).absolute()
        real = Path(os.path.realpath(target))  # keep a symbolic link
        refuse_special_file(Path(output), "give another -o")
        if not real.parent.is_dir():
            raise PackError(f"cannot write {output}: {real.parent} must be a directory")
        with workdir_for(real) as workdir:
            report = build_and_try(spec, given, workdir)
            packed = workdir / ARCHIVE_NAME
            size = packed.stat().st_size
            os.replace(packed, real)
        return PackReport(**vars(report), output=target, size=size)

    signature = inspect.signature(pack)
    parameters = [signature.parameters["spec"], signature.parameters["output"]]
    parameters += inspect.signature(keywords).parameters.values()
    pack.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return pack


pack = _taking(PackKeywords)


def propose(spec: str, given: PackKeywords) -> PlanReport:
    """Return the decisions of pack without writing an archive: a dry run in a temporary directory.

    Args:
        spec: as in pack.
        given: the keyword arguments of pack.

    Raises:
        PackError: as in pack.
    """
    with workdir_for(Path(tempfile.gettempdir()) / PLANNING) as workdir:
        return build_and_try(spec, given, workdir)
