"""The options of packing, declared once.

``pack`` takes them as keyword arguments, the commands as options, and the building process as part of its
job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Final

from interpool.archiver_ext.errors import PackError
from interpool.archiver_ext.packing.plan import Plan, check_glob
from interpool.archiver_ext.packing.serving_choices import NO_CHOICES, Choices
from interpool.native.archive.format import TOLERANCES_BELOW, is_tolerance

Progress = Callable[[str], None]

INPUT_FILES: Final = (".json", ".pt", ".pth")
"""Suffixes of files of example inputs."""


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """Options of packing. The text in each field's type describes it; the commands show it as help.

    A second text says what the default means. If a field takes several globs, a text is one glob. Globs of
    modules have torch.package's syntax (``einops.**``), and override the plan and the rules.
    """

    root: Annotated[
        Path | None, "your project's directory, which is put on sys.path", "the current directory"
    ] = None
    inputs: Annotated[
        str | None,
        "example inputs: a SPEC, a .json or a .pt file",
        "example_inputs beside SPEC, if it exists",
    ] = ""
    """None does not run the model, and leaves out the self-test."""
    intern: Annotated[Iterable[str], "modules to put into the archive"] = ()
    """The first match of deny, mock, extern, intern decides."""
    extern: Annotated[Iterable[str], "modules to take from the server"] = ()
    mock: Annotated[Iterable[str], "modules to replace by a mock"] = ()
    deny: Annotated[Iterable[str], "modules to refuse"] = ()
    data: Annotated[
        Iterable[str],
        "files below the root that the code opens without pack's notice, such as 'mypkg/vocab/*.txt'; "
        "the archive's code finds them through __file__ and importlib.resources",
    ] = ()
    rtol: Annotated[float, "relative tolerance of the self-test"] = 1e-4
    atol: Annotated[float, "absolute tolerance of the self-test"] = 1e-5
    serving: Annotated[
        Choices, "how it is served; overrides the plan, which overrides the choices beside SPEC"
    ] = NO_CHOICES
    serve_check: Annotated[
        bool,
        "whether the example inputs must be answered as requests, too; one that works goes into the archive",
    ] = True

    @property
    def project(self) -> Path:
        """The root, without links."""
        return (self.root or Path()).resolve()

    def globs(self) -> dict[str, list[str]]:
        """Return the user's patterns by action."""
        return {action: _several(getattr(self, action)) for action in ("deny", "mock", "extern", "intern")}


def _several(globs: Iterable[str]) -> list[str]:
    """Return globs as a list; a text is one of them."""
    return [globs] if isinstance(globs, str) else [*globs]


def _silent(_words: str) -> None:
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class PackKeywords(PackOptions):
    """The keyword arguments of ``pack``: its options, a plan, and a function that shows progress."""

    plan: Annotated[Plan | None, "decisions to follow as they are, from read_plan or a report"] = None
    progress: Annotated[Progress, "called with a short description before each step"] = _silent

    def checked(self, spec: str) -> PackOptions:
        """Return valid options, completed from the plan.

        Args:
            spec: the SPEC that will be packed.

        Raises:
            PackError: an option is invalid, or the plan belongs to another SPEC.
        """
        if not self.project.is_dir():
            raise PackError(f"the project's root {self.project} is not a directory")
        globs = self.globs()
        for action, patterns in globs.items():
            for pattern in patterns:
                try:
                    check_glob(pattern)
                except ValueError as error:
                    raise PackError(f"--{action} {pattern}: {error}") from None
        for name in ("rtol", "atol"):
            if not is_tolerance(tolerance := getattr(self, name)):
                raise PackError(
                    f"--{name} {tolerance}: it must be a number from 0 on, and below {TOLERANCES_BELOW:g}"
                )
        values = {each.name: getattr(self, each.name) for each in fields(PackOptions)}
        values |= {**globs, "data": _several(self.data), "root": self.project}
        if self.plan is not None:
            if self.plan.spec != spec:
                raise PackError(
                    f"the plan was made for {self.plan.spec}, not for {spec}; make one with "
                    f"interpool plan {spec}"
                )
            values["serving"] = self.serving.or_else(self.plan.serving)
            if self.inputs == "":
                values["inputs"] = self.plan.inputs
        # Relative to the working directory of now: the project's modules may change it.
        if values["inputs"] and Path(values["inputs"]).suffix in INPUT_FILES:
            values["inputs"] = os.path.abspath(values["inputs"])
        return PackOptions(**values)
