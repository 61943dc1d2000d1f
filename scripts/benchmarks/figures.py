"""The tables of figures in README and docs/, and the plots, from the results kept in ``docs/benchmarks/``.

.venv/bin/python scripts/benchmarks figures    makes them; tests hold them to the results
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from marked import Tables, markdown_table, with_tables

from benchmarks.shared import curves as suite_plot
from benchmarks.shared import peer, report
from benchmarks.shared.checkout import ROOT
from benchmarks.weights import workers_plot

README, PAGE, FAQ = ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "faq.md"
BY = "scripts/benchmarks/figures.py"
SERVERS = "stock", "pool", "at once", "bound"
BY_WORKERS = "rate", "p50_ms", "p99_ms", "workers_mb", "frontends_mb"


def kept_file(name: str) -> Path:
    """Where that benchmark's last published run is kept."""
    return ROOT / "docs" / "benchmarks" / f"{name}.json"


def kept(name: str) -> dict[str, Any]:
    """What is kept of that benchmark's last published run."""
    result: dict[str, Any] = json.loads(kept_file(name).read_text())
    return result


def is_kept(name: str) -> bool:
    """Whether a run of that benchmark has been published."""
    return kept_file(name).exists()


def spread(values: list[float], digits: int = 0) -> str:
    """``median (least to most)``."""
    middle, least, most = median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({least:,.{digits}f} to {most:,.{digits}f})"


# ---- the README's ----------------------------------------------------------------------------


def headlines() -> str:
    """What is measured, stock's figure, and the pool's."""
    startup, rest = kept("startup")["measured"], kept("rest")["measured"]
    models = {(one["models"], one["workers"]): one for one in kept("memory")["table"]}

    def seconds(name: str) -> str:
        return f"{median(startup[name]):.2g} s"

    def memory(what: str, key: tuple[int, int]) -> list[str]:
        one = models[key]
        computed = " (computed)" if one["stock computed"] else ""
        return [what, f"{one['stock, MB']:,.0f} MB{computed}", f"{one['pool, MB']:,.0f} MB"]

    def rate(what: str, case: str) -> list[str]:
        each = [median(rest[f"{case}, 2 workers, 8 clients: {name}"]) for name in SERVERS[:2]]
        return [f"requests a second, {what}, two workers, eight clients", *(f"{one:,.0f}" for one in each)]

    def of_one_worker(what: str) -> list[str]:
        one = next(one for one in kept("weights")["table"] if (one["megabytes"], one["workers"]) == (0, 1))
        return [what, *(f"{median(one[f'{server}_mb']):,.0f} MB" for server in SERVERS[:2])]

    def served(what: str, figure: str, unit: str) -> list[str]:
        residual = kept("serving")["figures"]["medium"]
        each = [residual[name][figure] for name in ("stock TorchServe", "interpool, packed")]
        return [what, *(f"{median(one['8']):,.0f}{unit}" for one in each)]

    def of_weights(what: str, figure: str, unit: str) -> list[str]:
        most = max(kept("weights")["table"], key=lambda one: (one["megabytes"], one["workers"]))
        each = [median(most[f"{server}_{figure}"]) for server in ("stock", "pool")]
        return [what, *(f"{one:,.0f}{unit}" if one >= 10 else f"{one:.2g}{unit}" for one in each)]

    four = "`PUT min_worker=4` on a warm server, until each of the four has answered rightly"
    first = "a server just started: from the first model's registration to its first correct answer"
    return markdown_table(
        "on two shared cores, both of a row side by side in one run | stock TorchServe | interpool",
        [
            [four, seconds("stock: answered"), seconds("pool: answered")],
            [first, seconds("stock: first"), seconds("pool: first, host by serve")],
            of_weights("memory, a model with a gigabyte of weights, four workers", "mb", " MB"),
            of_weights(
                "a model with a gigabyte of weights: from one worker until four answer", "scaled_s", " s"
            ),
            of_one_worker("memory, one small model with one worker"),
            memory("memory, two small models with two workers each", (2, 2)),
            memory("memory, ten small models with eight workers each", (10, 8)),
            rate("a tower of two gated layers", "tiny"),
            rate("a megabyte, and no model", "1 MB"),
            served("requests a second, a residual network of 20 ms, eight workers", "rate", ""),
            served("memory of eight workers of a residual network", "workers_mb", " MB"),
        ],
    )


def handlers() -> str:
    """Ordinary archives as they are: memory of both servers, and the time to register them."""
    one = kept("memory")["ordinary"]
    what = f"{one['models']} handlers, {one['workers']} workers each"
    rows = [
        [name, *(f"{one[f'{server}, {unit}']:,.0f} {unit}" for server in SERVERS[:2])]
        for name, unit in ((f"memory, {what}", "MB"), ("registered, and each has answered, within", "s"))
    ]
    return markdown_table(" | stock TorchServe | interpool", rows)


_TRITON_PLATFORMS = (
    "https://github.com/triton-inference-server/backend/blob/main/docs/backend_platform_support_matrix.md"
)
_LITSERVE_TESTS = "https://github.com/Lightning-AI/LitServe/blob/main/.github/workflows/ci-testing.yml"
# By their names in the kept result: a link to their description, and what eight workers are. Then: hermetic
# archives; an unchanged .mar; GPUs and main platforms, each with a link to its source.
PROCESSES = "8 processes", "no", "no"
COMPARED = {
    "stock TorchServe": (
        "[TorchServe](https://docs.pytorch.org/serve/), stock",
        "8 processes",
        "no",
        "yes",
        "[yes](https://docs.pytorch.org/serve/configuration.html#limit-gpu-usage)",
        "Linux, macOS, [Windows](https://docs.pytorch.org/serve/torchserve_on_win_native.html)",
    ),
    "mosec": (
        "[mosec](https://pypi.org/project/mosec/)",
        *PROCESSES,
        "[yes](https://mosecorg.github.io/mosec/examples/env.html)",
        "[Linux, macOS](https://pypi.org/project/mosec/#files)",
    ),
    "LitServe": (
        "[LitServe](https://lightning.ai/docs/litserve)",
        *PROCESSES,
        "[yes](https://lightning.ai/docs/litserve/features/gpu-inference)",
        f"[Linux, macOS, Windows]({_LITSERVE_TESTS})",
    ),
    "Ray Serve": (
        "[Ray Serve](https://docs.ray.io/en/latest/serve/)",
        *PROCESSES,
        "[yes](https://docs.ray.io/en/latest/serve/resource-allocation.html)",
        "[Linux, macOS, Windows (beta)](https://docs.ray.io/en/latest/ray-overview/installation.html)",
    ),
    "Triton": (
        "[Triton](https://github.com/triton-inference-server/python_backend), Python backend",
        *PROCESSES,
        f"[yes]({_TRITON_PLATFORMS})",
        f"[Linux]({_TRITON_PLATFORMS})",
    ),
    "free-threaded": (
        "[free-threaded Python](docs/benchmarks.md#free-threaded-python), no server",
        "8 threads",
        "no",
        "no",
        "yes",
        "Linux, macOS, Windows",
    ),
    "multipy": (
        "[multipy](https://github.com/pytorch/multipy) (retired), no server",
        "8 interpreters",
        "yes",
        "no",
        "[yes](https://github.com/pytorch/multipy/blob/main/multipy/runtime/example/gpu_wrapper.py)",
        "[Linux x86, own builds](https://github.com/pytorch/multipy#readme)",
    ),
}
NOT_MEASURED = "[not measured](docs/benchmarks.md#serving)"
NO_SERVERS = ("free-threaded", "multipy")  # they answer no requests


def ten_models() -> dict[str, str]:
    """Each framework's memory with ten small models of four workers each."""
    by_name = kept("serving-models")["figures"]["small"]
    return {
        name: f"{median(one['mb']):,.0f} MB" + (", a server each" if one["servers"] > 1 else "")
        for name, one in by_name.items()
    }


def comparison() -> str:
    """Other ways to serve a model: figures of the kept results, and what each says of itself."""
    in_ten = ten_models()
    ours = (
        "interpool, behind TorchServe",
        "one process, 8 shims",
        "yes",
        "yes",
        "[one H100 tried](docs/gpus.md)",
        "Linux x86_64",
    )
    rows = []
    for name, (link, *facts) in {"interpool, packed": ours, **COMPARED}.items():
        by_model = {model: by_name.get(name) for model, by_name in kept("serving")["figures"].items()}
        small, medium = by_model["small"], by_model["medium"]
        unknown = "-" if name in NO_SERVERS else NOT_MEASURED
        figures = [unknown] * 4
        if small and medium:
            memory = sum(median(small[part]["8"]) for part in ("workers_mb", "frontends_mb"))
            restarted = ", restarted" if small["restarts"] else ""
            figures = [
                f"{memory:,.0f} MB",
                *(f"{median(one['rate']['8']):,.0f}" for one in (small, medium)),
                f"{median(small['scaled_s']):.1f} s{restarted}",
            ]
        rows.append([link, facts[0], figures[0], in_ten.get(name, unknown), *figures[1:], *facts[1:]])
    head = (
        " | 8 workers are | their memory | 10 models, 4 workers each | requests a second, small model | "
        "medium model | 1 to 8 workers | hermetic archives | runs a `.mar` as it is | GPU | main platforms"
    )
    days = f"Measured on {kept('serving')['date']}; ten models on {kept('serving-models')['date']}."
    return f"{markdown_table(head, rows)}\n\n{days}"


# ---- those of docs/benchmarks.md -------------------------------------------------------------


def bars(name: str) -> str:
    """What was asked of a benchmark, and what came out."""
    rows = [
        [bar["name"], f"{bar['ratio']:.3g}", f"{bar['least']:g}", "met" if bar["met"] else "**missed**"]
        for bar in kept(name)["bars"]
    ]
    return markdown_table("bar | ratio | at least | ", rows)


def requests() -> str:
    """Rates, 99th percentiles and CPU time of each case."""
    rows = []
    for label, case in kept("rest")["cases"].items():
        for name in SERVERS:
            cpu, own = case["cpu_ms"][name], case["own_cpu_ms"].get(name)
            besides = f"{median(cpu) - median(own):.3f} ms" if own else ""
            rows.append(
                [
                    label if name == "stock" else "",
                    name,
                    spread(case["rates"][name]),
                    f"{report.ratio(case['rates'][name], case['rates']['stock']):.2f}",
                    ", ".join(f"{median(case[part][name]):.1f}" for part in ("p50", "p99")) + " ms",
                    f"{median(cpu):.3f} ms",
                    besides,
                ]
            )
    head = (
        "what |  | requests a second | over stock | p50, p99 | CPU time of the workers | besides the model's"
    )
    return markdown_table(head, rows)


def first_models() -> str:
    """From a registration to the first correct answer, and what follows it."""
    measured = kept("startup")["measured"]
    stock = measured["stock: first"]
    rows = []
    for name, values in measured.items():
        ratio = ""
        if "first" in name and "p99" not in name:
            ratio = f"{report.ratio(values, stock):.2f}"
        rows.append([name, f"{spread(values, 3)} s", ratio])
    return markdown_table("what | time | over stock's first", rows)


KINDS = {
    "lean": "lean imports",
    "full": "`INTERPOOL_FULL_IMPORT=1`",
    "process": "a Python process with the same",
}


def interpreters(name: str = "memory") -> str:
    """What a further interpreter adds, beside a process, or a further thread of another Python."""
    measured = {what: median(values) for what, values in kept(name)["measured"].items()}
    kinds = {what.partition(", bare")[0]: None for what in measured if ", bare" in what}
    rows = []
    for kind in kinds:
        memory = [f"{what}: {part}, MB" for what in ("bare", "BERT") for part in ("pss", "dirty")]
        cells = [measured.get(f"{kind}, {what}") for what in (*memory, "ready, s of CPU")]
        rows.append([KINDS.get(kind, kind), *("" if one is None else f"{one:.3g}" for one in cells)])
    bert = "with BERT, over its weights: PSS | private dirty"
    head = f" | bare: PSS, MB | private dirty | {bert} | ready: s of CPU"
    return markdown_table(head, rows)


def models_and_workers() -> str:
    """Memory of both servers."""
    rows = []
    for one in kept("memory")["table"]:
        star = " \\*" if one["stock computed"] else ""
        pool, stock = one["pool, MB"], one["stock, MB"]
        what = f"{one['models']} x {one['workers']}"
        rows.append([what, f"{pool:,.0f} MB", f"{stock:,.0f} MB{star}", f"{stock / pool:.1f}"])
    return markdown_table("models x workers of each | pool | stock | stock over pool", rows)


def registrations() -> str:
    """From the registration of a model with weights to its first right answer."""
    rows = []
    for one in kept("weights")["registrations"]:
        unpacked = [f"{median(one[f'{name}_unpacked_s']):.2f}" for name in SERVERS[:2]]
        rows.append(
            [
                f"{one['megabytes']:,} MB",
                *(f"{spread(one[f'{name}_s'], 2)} s" for name in SERVERS[:2]),
                f"{report.ratio(one['stock_s'], one['pool_s']):.1f}",
                f"{', '.join(unpacked)} s",
            ]
        )
    head = "weights | stock | pool | stock over pool | of it the frontend's unpacking: stock, pool"
    return markdown_table(head, rows)


def weights() -> str:
    """Memory of both servers, and their time to scale, by a model's weights and workers."""
    rows = []
    for one in kept("weights")["table"]:
        memory = [f"{median(one[f'{name}_mb']):,.0f}" for name in SERVERS[:2]]
        copies = [one[f"{name}_copies"] for name in SERVERS[:2]]
        seconds = [one[f"{name}_scaled_s"] for name in SERVERS[:2]]
        rows.append(
            [
                f"{one['megabytes']:,} MB x {one['workers']}",
                *(f"{each} MB" for each in memory),
                f"{report.ratio(one['stock_mb'], one['pool_mb']):.1f}",
                *(f"{median(each):.2f}" if each else "" for each in copies),
                *(f"{median(each):.2f} s" if each else "" for each in seconds),
            ]
        )
    head = (
        "weights x workers | stock | pool | stock over pool | copies of the weights: stock | pool | "
        "from 1 worker, all answering: stock | pool"
    )
    return markdown_table(head, rows)


def iterations() -> str:
    """Iterations a second, over those of two processes."""
    measured = kept("scaling")["measured"]
    rows = []
    for name, values in measured.items():
        over = measured["packaged: two processes" if name.startswith("packaged") else "two processes"]
        ratio = report.ratio(values, over)
        rows.append([name, spread(values), f"{ratio:.3f}"])
    return markdown_table("what | iterations a second | over two processes", rows)


NOT_KEPT = "No result is kept yet."


def free_threads() -> str:
    """Each model's calls a second, over those of two processes, and what the other Python cannot run."""
    if not is_kept("scaling-peer"):
        return NOT_KEPT
    result = kept("scaling-peer")
    rows = [
        [model, way, spread(rates), f"{ratio:.2f}"] for model, way, rates, ratio in _over_processes(result)
    ]
    rows += [[model, _peer(result), why, ""] for model, why in result["left_out"].items()]
    return markdown_table("model | what | calls a second | over two processes", rows)


def free_threads_in_short() -> str:
    """The least and the most of all models that each way to have two threads reaches of two processes."""
    if not is_kept("scaling-peer"):
        return NOT_KEPT
    result = kept("scaling-peer")
    reached: dict[str, list[float]] = {}
    for _, way, _, ratio in _over_processes(result):
        if way.startswith("two") and way != "two processes":
            reached.setdefault(way.partition(", free-threaded")[0], []).append(ratio)
    ways = [f"- {way}: {min(ratios):.2f} to {max(ratios):.2f}" for way, ratios in reached.items()]
    return "\n".join([f"Measured with {_peer(result)}, over the rate of two processes:", "", *ways])


def _peer(result: dict[str, Any]) -> str:
    """The other Python of a result, with its versions."""
    return peer.named(**result["peer"])


def _over_processes(result: dict[str, Any]) -> Iterator[tuple[str, str, list[float], float]]:
    """Of each row of scaling-peer: model, way, rates, and the rate over that of two processes."""
    for name, rates in result["measured"].items():
        model, _, way = name.partition(": ")
        yield model, way, rates, report.ratio(rates, result["measured"][f"{model}: two processes"])


def further_threads() -> str:
    """What a further thread of a free-threaded Python takes, beside a further interpreter and a process."""
    if not is_kept("memory-peer"):
        return NOT_KEPT
    result = kept("memory-peer")
    left_out = [f"{what}, {_peer(result)}: {why}" for what, why in result["left_out"].items()]
    return "\n\n".join([interpreters("memory-peer"), *left_out])


def servers(result: str = "serving") -> str:
    """Each framework with each model, with each number of workers."""
    rows = []
    for model, by_name in kept(result)["figures"].items():
        few, *more = sorted(map(int, next(iter(by_name.values()))["rate"]))
        most = max([few, *more])
        for name, one in by_name.items():
            middle = {what: {int(n): median(all_) for n, all_ in one[what].items()} for what in BY_WORKERS}
            megabytes = middle["workers_mb"][most] + middle["frontends_mb"][most]
            rows.append(
                [
                    model,
                    name,
                    *(spread(one["rate"][str(count)]) for count in (few, *more)),
                    f"{middle['p50_ms'][most]:.3g}, {middle['p99_ms'][most]:.3g} ms",
                    f"{megabytes:,.0f} MB",
                    f"{median(one['scaled_s']):.1f} s" + (" (restarted)" if one["restarts"] else ""),
                    f"{median(one['first_s']):.1f} s",
                    f"{median(one['another_s']):.2f} s" if one["another_s"] else "a server each",
                ]
            )
    counts = " | ".join(f"{count} workers" for count in (few, *more))
    head = (
        f"model | server | requests a second, {counts} | p50, p99 | memory | 1 to {most} workers | "
        "start to first answer | another model"
    )
    return markdown_table(head, rows)


def models_together(name: str) -> str:
    """Each framework with several models at once; what was asked of interpool."""
    rows = []
    for model, by_server in kept(name)["figures"].items():
        for server, one in by_server.items():
            seconds = [f"{median(one[what]):.1f} s" for what in ("first_s", "all_s")]
            memory = f"{median(one['mb']):,.0f} MB"
            rows.append([model, server, str(one["servers"]), *seconds, spread(one["rate"]), memory])
    head = "model | server | servers | each model has answered | each worker has | requests a second | memory"
    return "\n\n".join([markdown_table(head, rows), bars(name)])


def slopes() -> str:
    """What grew in the soak, and how far that is known."""
    result = kept("soak")
    rows = [
        [what, f"{one['per_hour']:+.3g} ± {one['error']:.2g}", f"{one['limit']:.3g}", one["verdict"]]
        for what, one in result["slopes"].items()
        if "limit" in one
    ]
    leak = result["leak"]
    rows.append(
        ["memory_mb, with the leak", f"{leak['per_hour']:+.0f} ± {leak['error']:.0f}", "", leak["verdict"]]
    )
    return markdown_table("what | an hour | at most | ", rows)


def suite() -> str:
    """Each model of the paper's suite, called by as many threads as there are cores."""
    result = kept("scaling-suite")
    cores = str(result["cores"])
    most = max(map(int, result["suite"][0]["rates"]["processes"]))
    rows = []
    for curves in result["suite"]:
        rates = {way: by_width[cores] for way, by_width in curves["rates"].items()}
        mine = rates["interpreters"]
        others = ("processes", "forked processes", "one interpreter", "graph")
        over = [f"{report.ratio(mine, rates[way]):.2f}" if way in rates else "" for way in others]
        alone = median(curves["rates"]["interpreters"]["1"])
        memory = [f"{curves['memory'][way] / 1e6:,.0f}" for way in ("interpreters", *others[:2])]
        rows.append(
            [
                curves["model"],
                *(f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for each in (alone, median(mine))),
                *over[:3],
                over[3] and f"{over[3]} ({curves['graph']})",
                f"{', '.join(memory)} MB",
            ]
        )
    head = (
        f"model | calls a second, one interpreter | {cores} interpreters | over processes | "
        "over forked ones | over one interpreter's threads | over the graph | "
        f"memory of {most}: pool, processes, forked"
    )
    return markdown_table(head, rows)


def runs() -> str:
    """When, where and with what each kept result was made, and what its run says against it.

    Blank if an older result does not say.
    """
    rows = []
    for path in sorted((ROOT / "docs" / "benchmarks").glob("*.json")):
        result = kept(path.stem)
        machine, versions = result.get("machine", {}), result.get("versions", {})
        size = (
            f"{machine['cpu']}, {machine['memory_gb']:.0f} GB, Linux {machine['kernel']}" if machine else ""
        )
        size = ", ".join(filter(None, [size, result.get("device", "")]))
        rows.append(
            [
                f"[{path.stem}](benchmarks/{path.name})",
                result.get("date", ""),
                str(result.get("cores", "")),
                size,
                ", ".join(f"{name} {_own(name, version)}" for name, version in versions.items()),
                result.get("doubt") or "",
            ]
        )
    return markdown_table("result | made on | cores | machine | with | doubt", rows)


def _own(name: str, version: str | dict[str, str]) -> str:
    """A server's version among those of all that its environment has: ``ray``'s for Ray Serve."""
    if isinstance(version, str):
        return version
    plain = name.lower().replace(" ", "")
    return version[max((package for package in version if plain.startswith(package)), key=len)]


def neighbours() -> str:
    """A quiet model's latency, alone and beside a greedy one, and what the greedy one gets."""
    result = kept("neighbour")
    rows = []
    for server in ("stock", "pool", "pool, share 1"):
        for beside in ("alone", "beside a greedy one"):
            name = f"{server}: {beside}"
            greedy = "" if beside == "alone" else spread(result["greedy_answers_per_s"][server], 2)
            rows.append([name, f"{result['p50'][name]:.3f} s", f"{result['p99'][name]:.3f} s", greedy])
    return markdown_table("what | p50 | p99 | greedy answers a second", rows)


def many() -> str:
    """One pool with many models: times and memory."""
    rows = []
    for name, values in kept("many")["measured"].items():
        what, _, unit = name.rpartition(", ")
        digits = 2 if max(values) < 1 else 1
        rows.append([what, f"{spread(values, digits) if len(values) > 1 else f'{values[0]:.1f}'} {unit}"])
    return markdown_table("what | ", rows)


CALLS = {
    "plain call": "plain Python call of a function that does nothing",
    "call of a movable object": "the function as a movable object: lease, call, take the result, give back, "
    "in one visit",
    "call in an open session": "the function, called in an open session, and its result as a value",
    "lease": "lease an interpreter and give it back",
    "by hand": "by hand: lease, look the function up, call it, take the result, give back",
    "tensor of 10": "lease, pass a tensor of ten elements in and out, give back",
    "tensor of 1,000": "… of a thousand elements",
    "tensor of 100,000": "… of a hundred thousand",
    "tensor of 10,000,000": "… of ten million",
}


def calls() -> str:
    """What calls and tensors cost."""
    measured = kept("session")["measured"]
    rows = [[what, spread(measured[name], 2 if name == "plain call" else 1)] for name, what in CALLS.items()]
    return markdown_table("what | µs", rows)


def on_a_gpu() -> str:
    """Rates and the device's memory of each way to have so many on one GPU."""
    rows = []
    for each in kept("gpu")["suite"]:
        for way, by_width in each["rates"].items():
            for width, rates in by_width.items():
                memory = f"{each['memory_mb'][way][width]:,.0f}"
                rows.append([each["model"], way, width, spread(rates), memory])
    header = "model | way | at once | calls/s, median (least to most) | device memory, MB"
    return markdown_table(header, rows)


WITH_BARS = (
    *("many", "memory", "neighbour", "rest", "scale_out", "scaling", "serving", "session", "startup"),
    "weights",
)
TABLES: dict[Path, Tables] = {
    README: {"handlers": handlers, "figures": headlines, "comparison": comparison},
    PAGE: {
        "runs": runs,
        "interpreters": interpreters,
        "models-and-workers": models_and_workers,
        "registrations": registrations,
        "weights": weights,
        "requests": requests,
        "iterations": iterations,
        "free-threads": free_threads,
        "further-threads": further_threads,
        "first-models": first_models,
        "suite": suite,
        "suite-bars": partial(bars, "scaling-suite"),
        "servers": servers,
        "all-servers": partial(servers, "serving-all"),
        "direct-servers": partial(servers, "serving-direct"),
        "direct-bars": partial(bars, "serving-direct"),
        "serving-models": partial(models_together, "serving-models"),
        "serving-two-workers": partial(models_together, "serving-two-workers"),
        "serving-first-seconds": partial(models_together, "serving-first-seconds"),
        "slopes": slopes,
        "neighbours": neighbours,
        "many": many,
        "calls": calls,
        "gpu": on_a_gpu,
        **{f"{name.replace('_', '-')}-bars": partial(bars, name) for name in WITH_BARS},
    },
    FAQ: {"free-threads-in-short": free_threads_in_short},
}
# Of each kept result: the file that it is drawn into, and what draws it.
PLOTS: dict[str, tuple[str, Callable[[dict[str, Any], Path], Path]]] = {
    "gpu": ("gpu.svg", lambda result, file: suite_plot.draw(result["suite"], file)),
    "scaling-suite": ("scaling-suite.svg", lambda result, file: suite_plot.draw(result["suite"], file)),
    "weights": ("workers.svg", workers_plot.draw),
}


def stamp(name: str) -> str:
    """The last line of a plot: which kept result, byte for byte, it was drawn from."""
    return f"<!-- {name}.json, sha256 {hashlib.sha256(kept_file(name).read_bytes()).hexdigest()} -->\n"


def plot(name: str, folder: Path) -> Path:
    """Draw a kept result into a folder; gives the file."""
    file, draw = PLOTS[name]
    drawn = draw(kept(name), folder / file)
    drawn.write_text(drawn.read_text(encoding="utf-8") + stamp(name), encoding="utf-8")
    return drawn


if __name__ == "__main__":
    for drawn in PLOTS:
        plot(drawn, kept_file(drawn).parent)
    for page, tables in TABLES.items():
        page.write_text(with_tables(page, tables, BY), encoding="utf-8")
