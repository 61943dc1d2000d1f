"""What lies beside the handler: modules, packages, data, requirements."""

from __future__ import annotations

from system.comparison import weights
from system.comparison.archive import Archive, post

ARCHIVES = [
    Archive(
        "function_style",
        handler="service.py",
        extra=["labels.txt"],
        requests=[post(1), post({"a": [None, True]}), post("x")],
        statuses=[200, 200, 200],
    ),
    Archive("named_function", handler="entry:predict", requests=[post(1)], statuses=[200]),
    Archive(
        "side_modules",
        handler="handler.py",
        extra=["labels.txt", "utils.py", "helpers", "lib"],
        requests=[post(1), post(2)],
        statuses=[200, 200],
    ),
    Archive(
        "requirements",
        handler="handler.py",
        make=weights.wheel,
        extra=["tiny_dependency-1.0-py3-none-any.whl"],
        requirements="--no-index\n--find-links .\ntiny-dependency\n",
        requests=[post(1)],
        statuses=[200],
    ),
]
