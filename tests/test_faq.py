"""Figures in docs/faq.md are those of the results that are kept in docs/benchmarks."""

from __future__ import annotations

import statistics

import pytest
from paths import ROOT

from benchmarks import figures
from benchmarks.shared import report

FAQ = " ".join((ROOT / "docs" / "faq.md").read_text(encoding="utf-8").split())


def measured(name: str, what: str) -> float:
    return statistics.median(figures.kept(name)["measured"][what])


def threads_sentences() -> list[str]:
    scaling = figures.kept("scaling")
    threads, processes = (scaling["measured"][f"two {each}"] for each in ("threads", "processes"))
    interpreters = scaling["bars"][0]["ratio"]
    return [
        f"Two interpreters reach {interpreters:.3f} of the rate of two processes",
        f"two threads reach {report.ratio(threads, processes):.3f}",
    ]


def direct_sentences() -> list[str]:
    ratios = {bar["name"]: bar["ratio"] for bar in figures.kept("serving-direct")["bars"]}
    direct, alone = (
        ratios[f"small: {name}'s rate over mosec's"] for name in ("interpool, direct", "interpool run")
    )
    return [f"it reaches {direct:.2f} of mosec's rate, and `interpool run` {alone:.2f}."]


def server_sentences() -> list[str]:
    small = figures.kept("serving")["figures"]["small"]
    rates = {name: statistics.median(one["rate"]["8"]) for name, one in small.items()}
    scaled = {name: statistics.median(one["scaled_s"]) for name, one in small.items()}
    parts = ("workers_mb", "frontends_mb")
    memory = {
        name: f"{sum(statistics.median(one[part]['8']) for part in parts):,.0f} MB"
        for name, one in small.items()
    }
    ours, stock = "interpool, packed", "stock TorchServe"
    others = f"LitServe {memory['LitServe']} and Ray Serve {memory['Ray Serve']}"
    return [
        f"mosec answers {rates['mosec']:,.0f} requests a second",
        f"behind TorchServe {rates[ours]:,.0f}.",
        f"takes {memory[ours]}, mosec {memory['mosec']}, stock TorchServe {memory[stock]}, {others}",
        f"takes {scaled[ours]:.1f} s, and {scaled[stock]:.1f} s in stock TorchServe",
    ]


def worker_sentences() -> list[str]:
    one, two = (
        [f"{statistics.median(row[server]):,.0f} MB" for server in ("stock_mb", "pool_mb")]
        for row in figures.kept("weights")["table"][:2]
    )
    return [f"less memory: {one[0]} against {one[1]}", f"is smaller: {two[1]} against {two[0]}"]


def crash_sentences() -> list[str]:
    pool, stock = (measured("startup", f"{server}: after a kill") for server in ("pool", "stock"))
    return [
        f"are ready {measured('many', 'ready after the host was killed, s'):.1f} s after",
        f"answers again after {pool:.2f} s; a killed stock worker takes {stock:.2f} s",
    ]


def gpu_sentences() -> list[str]:
    suite = figures.kept("gpu")["suite"][0]
    (ours, our_memory), (theirs, their_memory) = (
        (f"{statistics.median(suite['rates'][way]['8']):,.0f}", f"{suite['memory_mb'][way]['8']:,.0f} MB")
        for way in ("interpreters", "processes")
    )
    return [
        f"eight interpreters answer {ours} calls a second with {our_memory}",
        f"Eight processes answer {theirs} with {their_memory}",
    ]


def library_sentences() -> list[str]:
    libraries = figures.kept("libraries")["libraries"]
    assert {library["status"] for library in libraries} == {"computes"}
    return [f"{len(libraries)} [popular libraries]"]


@pytest.mark.parametrize(
    "sentences",
    [
        threads_sentences,
        server_sentences,
        direct_sentences,
        worker_sentences,
        crash_sentences,
        gpu_sentences,
        library_sentences,
    ],
)
def test_the_faq_says_what_was_measured(sentences) -> None:
    for sentence in sentences():
        assert sentence in FAQ
