"""What handlers do to the process that they take for theirs."""

from __future__ import annotations

from system.comparison.archive import ONE_INTERPRETER, Archive, post

ARCHIVES = [
    Archive(
        "environment",
        handler="handler.py",
        config=ONE_INTERPRETER,
        requests=[
            post({"random": True}),
            post({"write": "a"}),
            post({"write": "b"}),
            post({"child": True}),
            post({"random": True}),
        ],
        statuses=[200] * 5,
    ),
]
