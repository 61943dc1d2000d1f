"""What does a session cost, beside the same call in plain Python?

Calls are of a function that does nothing, in three ways. A movable object leases
an interpreter, calls, takes the result out and gives the interpreter back in one
visit. An open session calls alone. By hand, there are four visits: lease, look the
function up, call, take the result, give back. Configurations take turns in every round,
each timed over many calls; figures are per call. Tensors go in and come out
again, in sizes from ten elements to ten million.

A call may cost 3 us more than in plain Python: a movable object's, with its lease,
and an open session's. By hand is shown, without a bar. Passing a tensor must not
depend on its size: ten million elements within 1.5 times of ten.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it

import torch

from benchmarks.session import guest
from benchmarks.shared import report
from benchmarks.shared.turns import in_turns
from interpool import InterpreterManager

OVER_PLAIN = 3.0  # us
CALLS = ("call of a movable object", "call in an open session")
SPREAD = 1.5  # of a tensor's cost, ten million elements over ten
SIZES = [10, 1_000, 100_000, 10_000_000]

Work = Callable[[], object]


def configurations(manager: InterpreterManager) -> dict[str, Work]:
    """What is timed, by name. The first is the control."""
    acquire = manager.acquire_session
    kept = acquire()
    kept_function = kept.global_(guest.__name__, "nothing")

    def lease() -> object:
        acquire().close()
        return None

    def call() -> object:
        session = acquire()
        result = session.global_(guest.__name__, "nothing")().to_value()
        session.close()
        return result

    movable = manager.create_movable(guest.nothing)

    def pass_through(x: torch.Tensor) -> Work:
        def work() -> object:
            session = acquire()
            result = session.global_(guest.__name__, "same")(x).to_value()
            session.close()
            return result

        return work

    works: dict[str, Work] = {
        "plain call": guest.nothing,
        "lease": lease,
        CALLS[1]: lambda: kept_function().to_value(),
        "by hand": call,
        CALLS[0]: movable,
    }
    for size in SIZES:
        works[f"tensor of {size:,}"] = pass_through(torch.ones(size))
    return works


def per_call_us(work: Work, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        work()
    return (time.perf_counter_ns() - start) / calls / 1000


def check(works: dict[str, Work]) -> None:
    """What is timed does what it says."""
    for size in SIZES:
        x = works[f"tensor of {size:,}"]()
        if not isinstance(x, torch.Tensor) or x.shape != (size,) or not bool((x == 1).all()):
            raise RuntimeError(f"a tensor of {size} came back as {x!r}")
    for name in ("by hand", *CALLS):
        if works[name]() is not None:
            raise RuntimeError(f"{name} gave a result, but there is none")


def main() -> None:
    parser = report.parser("session", __doc__)
    parser.add_argument("--rounds", type=int, default=41, help="rounds, all configurations in each")
    parser.add_argument("--calls", type=int, default=2000, help="calls in one measurement")
    options = parser.parse_args()

    with InterpreterManager(2) as manager:
        works = configurations(manager)
        check(works)
        measured: dict[str, list[float]] = {name: [] for name in works}
        gc.disable()
        for work in works.values():
            per_call_us(work, options.calls)  # to warm up
        for name in in_turns(list(works), options.rounds):
            measured[name].append(per_call_us(works[name], options.calls))
        gc.enable()

    def compare(of: str, with_: str, how: Callable[[float, float], float]) -> list[float]:
        """The quartiles over the rounds."""
        pairs = zip(measured[of], measured[with_], strict=True)
        return statistics.quantiles([how(a, b) for a, b in pairs], n=4)

    over = {name: compare(name, "plain call", lambda a, b: a - b) for name in CALLS}
    flat = compare(f"tensor of {SIZES[-1]:,}", f"tensor of {SIZES[0]:,}", lambda a, b: a / b)
    # A bar that lies between the quartiles is met in some rounds, missed in others.
    torn = any(over[name][0] <= OVER_PLAIN < over[name][2] for name in CALLS) or flat[0] <= SPREAD < flat[2]
    doubt = "rounds differ by more than what is asked" if torn else ""
    report.finish(
        "session",
        measured,
        "us",
        [
            *(
                report.Bar(f"{OVER_PLAIN:g} us over what a {name} adds", OVER_PLAIN / over[name][1], 1.0)
                for name in CALLS
            ),
            report.Bar(f"{SPREAD:g} over large tensor over small", SPREAD / flat[1], 1.0),
        ],
        doubt,
    )


if __name__ == "__main__":
    main()
