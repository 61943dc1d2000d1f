"""HTTP clients that wait for each answer before they ask again, each in a thread."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from keep_alive import KeptConnection

MOST_ERRORS = 10


@dataclass
class Load:
    """What clients met: the seconds of each request, how many a second there were, answers if wanted."""

    seconds: list[float] = field(default_factory=list)
    rate: float = 0.0
    answers: list[bytes] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def percentile(values: list[float], part: float) -> float:
    """Of so many values, the one below which that part of them lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def load(
    url: str, body: bytes, content_type: str, clients: int, seconds: float, expected: bytes | None
) -> Load:
    """Post a body again and again for so many seconds, by so many clients.

    Args:
        expected: what each answer must be, but for white space; None: answers are kept instead.
    """
    where = urlsplit(url)
    found = Load()
    start = time.perf_counter()

    def ask(_client: int) -> None:
        now = start
        with KeptConnection(f"{where.scheme}://{where.netloc}") as connection:
            while now - start < seconds and len(found.errors) < MOST_ERRORS:
                begun = time.perf_counter()
                answer = connection.post(where.path, body, content_type)
                now = time.perf_counter()
                found.seconds.append(now - begun)
                if expected is None:
                    found.answers.append(answer.body)
                if answer.status != 200 or (expected is not None and answer.body.split() != expected.split()):
                    found.errors.append(f"{answer.status} {answer.body[:200]!r}")

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(ask, range(clients)))
    found.rate = len(found.seconds) / (time.perf_counter() - start)
    return found
