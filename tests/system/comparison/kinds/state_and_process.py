"""What handlers remember, and what they do to the process that they take for theirs."""

from __future__ import annotations

from system.comparison.archive import ONE_INTERPRETER, Archive, post

ARCHIVES = [
    Archive(
        "counter",
        handler="handler.py",
        config=ONE_INTERPRETER,
        extra=["lines.txt"],
        requests=[post(1)] * 5,
        statuses=[200] * 5,
    ),
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
    Archive(
        "threads",
        handler="handler.py",
        extra=["pair.py"],
        requests=[post(1), post(2), post(3)],
        statuses=[200] * 3,
        long=True,
    ),
    Archive("signals", handler="handler.py", requests=[post(1)], statuses=[200], in_pool=False, long=True),
    Archive(
        "forks",
        handler="handler.py",
        requests=[post(1), post(2)],
        statuses=[200, 200],
        in_pool=False,
        long=True,
        differs="the request that forks first fails; workers of its own serve the later ones",
    ),
    Archive(
        "main_thread",
        handler="handler.py",
        requests=[post(1), post(2)],
        statuses=[200, 200],
        long=True,
        differs="threading.main_thread() is not the thread that calls",
    ),
    Archive(
        "python_settings",
        handler="handler.py",
        requests=[post(1)],
        statuses=[200],
        long=True,
        differs="interpreters are in UTF-8 mode whatever the locale says",
    ),
    Archive(
        "exits",
        handler="handler.py",
        requests=[post("a"), post("exit"), post("b"), post("c")],
        statuses=[200, 500, 200, 200],
        long=True,
    ),
]
