"""Log lines, prints, warnings, and metrics of one's own."""

from __future__ import annotations

from system.comparison.archive import ONE_INTERPRETER, Archive, post

ARCHIVES = [
    Archive(
        "talkative",
        handler="handler.py",
        config=ONE_INTERPRETER,
        requests=[
            post({"levels": [10, 20, 30, 40, 50], "print": ["one", "two\nlines", "größe"]}),
            post({"stderr": ["to stderr"], "warn": ["careful", "careful"]}),
            post({"warn": ["careful"], "write": "half a "}),
            post({"write": "line\n"}),
            post({"measure": 3}),
            post({"measure": 4, "print": ["beside metrics", "[METRICS]not one"]}),
            post({"thread": "hello", "exception": "key"}),
            post({"raise": "in the end", "print": ["before it"]}),
        ],
        statuses=[200, 200, 200, 200, 200, 200, 200, 503],
    ),
]
