"""An archive that interpool never packed is served from the pool as TorchServe's own worker serves it."""

from __future__ import annotations

import difflib
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - a user's first process to import it, and no other, logs that it lists fonts
import pytest
from local_server import TorchServe
from system.comparison.archive import Archive
from system.comparison.building import build
from system.comparison.exchange import Exchange, send
from system.comparison.kinds import (
    answers,
    files_and_imports,
    loading,
    saying_and_measuring,
    shipped_handlers,
    state_and_process,
)
from system.comparison.logs import Said, said
from system.comparison.servers import Pair
from waiting import wait_for

KINDS = (shipped_handlers, loading, files_and_imports, answers, saying_and_measuring, state_and_process)
ARCHIVES = [archive for kind in KINDS for archive in kind.ARCHIVES]


def _parameter(archive: Archive) -> object:
    marks = [pytest.mark.long] * archive.long
    if archive.differs:
        marks.append(pytest.mark.xfail(reason=archive.differs, strict=True))
    return pytest.param(archive, id=archive.name, marks=marks)


@pytest.mark.parametrize("archive", [_parameter(archive) for archive in ARCHIVES])
def test_the_pool_answers_and_says_what_the_stock_worker_does(
    servers: Pair, archive: Archive, tmp_path: Path
) -> None:
    mar = build(archive, tmp_path)
    stock, pool = servers.both(lambda server: _Served(server, archive, mar))
    try:
        assert pool.runs_in_pool == archive.in_pool, pool.server.model_log()[-3000:]
        assert [answer.status for answer in stock.answers] == list(archive.statuses)
        for step, ours, theirs in zip(archive.steps, pool.answers, stock.answers, strict=True):
            assert ours == theirs, f"{step}:\n{_difference(str(theirs), str(ours))}"
        _same_words(stock, pool, archive)
    finally:
        servers.both(lambda server: server.unregister(archive.name))


class _Served:
    """An archive that was registered and asked all its requests."""

    def __init__(self, server: TorchServe, archive: Archive, mar: Path) -> None:
        self.server = server
        self.name = archive.name
        answer = server.register(f"file://{mar}", timeout=300, **archive.options)
        assert answer.status == 200, f"{answer.text}\n{server.model_log()[-3000:]}"
        self.loading = said(server, self.name)
        self.runs_in_pool = not any(map(_is_stock, server.describe(self.name)[0]["workers"]))
        self.answers: list[Exchange] = []
        for step in archive.requests:
            self.answers += send(server, self.name, step)

    def words(self, loading: Said, *, ordered: bool) -> Said:
        """What requests made it say. Loading's words are left out: each interpreter says them anew."""
        now = said(self.server, self.name)
        kept = (
            [line for line in lines if line not in before] for lines, before in zip(now, loading, strict=True)
        )
        return Said(*kept) if ordered else Said(*map(sorted, kept))


def _is_stock(worker: dict[str, object]) -> bool:
    """Whether a process is TorchServe's own worker: it has torch."""
    return "libtorch_cpu" in Path(f"/proc/{worker['pid']}/maps").read_text()


def _same_words(stock: _Served, pool: _Served, archive: Archive) -> None:
    ordered = not archive.unordered

    # TorchServe may write a line down after it has answered: what one of them has not said by then is
    # loading's all the same.
    loading = Said(*(theirs + ours for theirs, ours in zip(stock.loading, pool.loading, strict=True)))

    def difference() -> str:
        theirs, ours = stock.words(loading, ordered=ordered), pool.words(loading, ordered=ordered)
        all_theirs, all_ours = (Said(*map(_once, said(each.server, each.name))) for each in (stock, pool))
        return "\n".join(
            _difference(f"{name} " + f"\n{name} ".join(a), f"{name} " + f"\n{name} ".join(b))
            for name, a, b in (
                *zip(Said("stdout", "stderr", "metric"), theirs, ours, strict=True),
                *zip(Said("any stdout", "any stderr", "any metric"), all_theirs, all_ours, strict=True),
            )
            if (a != b if ordered else sorted(a) != sorted(b))
        )

    wait_for(lambda: not difference(), lambda: f"the same words\n{difference()}", pause=0.1)


def _once(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _difference(theirs: str, ours: str) -> str:
    lines = difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "stock", "pool", lineterm="", n=2)
    return "\n".join(line[:600] for line in lines)
