"""What lies beside the handler: modules, packages, data, requirements; equal names in other archives."""

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
    Archive(
        "named_function",
        handler="entry:predict",
        requests=[post(1)],
        statuses=[200],
        long=True,
    ),
    Archive(
        "side_modules",
        handler="handler.py",
        extra=["labels.txt", "utils.py", "helpers", "lib"],
        requests=[post(1), post(2)],
        statuses=[200, 200],
    ),
    *(
        Archive(
            twin,
            handler="handler.py",
            model_file="model.py",
            extra=["utils.py"],
            requests=[post([1, 2]), post([3])],
            statuses=[200, 200],
        )
        for twin in ("twin_a", "twin_b")
    ),
    Archive(
        "requirements",
        handler="handler.py",
        make=weights.wheel,
        extra=["tiny_dependency-1.0-py3-none-any.whl"],
        requirements="--no-index\n--find-links .\ntiny-dependency\n",
        requests=[post(1)],
        statuses=[200],
        long=True,
    ),
]
