"""Keeps a model in a private interpreter from changing the process for its neighbours.

Signals, timers, faulthandler, the recursion limit and autograd's anomaly mode: each is refused,
limited, or kept apart per interpreter. Settings that libtorch keeps for the whole process are
kept apart by C++ code. ``docs/settings.md`` has the whole table.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import warnings
from typing import Any, NoReturn

import _interpool
from interpool.native.upstream.torch_private import replace_anomaly_mode

# Deeper, code that recurses through C could run off the end of a stack of 8 MiB, which
# ends the process: a sort whose key sorts takes 2 KiB for each level of Python's count.
DEEPEST_RECURSION = 3000


def install() -> None:
    """Put the guards in place. Once per interpreter, after torch was imported."""
    _guard_anomaly_mode()
    _guard_signals()
    _guard_faulthandler()
    _guard_recursion()


def _guard_anomaly_mode() -> None:
    enabled = False

    def set_anomaly_enabled(value: bool, check_nan: bool = True) -> None:
        """Stands in for ``torch.set_anomaly_enabled``; on for all while one interpreter wants it."""
        nonlocal enabled
        if value and check_nan:
            raise RuntimeError(
                "autograd's anomaly detection with check_nan=True would raise errors in the backward "
                "passes of other interpreters too. Use detect_anomaly(check_nan=False), or turn it on "
                "in the host."
            )
        if bool(value) != enabled:
            enabled = bool(value)
            _interpool.want_anomaly_mode(enabled)

    def is_anomaly_enabled() -> bool:
        """Stands in for ``torch.is_anomaly_enabled``."""
        return enabled

    replace_anomaly_mode(set_anomaly_enabled, is_anomaly_enabled)


def _guard_signals() -> None:
    stock_alarm, stock_setitimer = signal.alarm, signal.setitimer

    def refuse_handler(*_args: Any) -> NoReturn:
        # CPython's own class of error for any thread but the main one.
        raise ValueError(
            "signal handlers belong to the whole process; inside a private interpreter none can be set. "
            "Set them in the host."
        )

    def alarm(seconds: int) -> int:
        if seconds:
            _refuse_timer()
        return stock_alarm(seconds)

    def setitimer(which: int, seconds: float, interval: float = 0.0) -> tuple[float, float]:
        if seconds:
            _refuse_timer()
        return stock_setitimer(which, seconds, interval)

    signal.signal = refuse_handler  # type: ignore[assignment]
    signal.set_wakeup_fd = refuse_handler  # type: ignore[assignment]
    signal.alarm = alarm
    signal.setitimer = setitimer


def _refuse_timer() -> NoReturn:
    raise ValueError(
        "the process's timer ends in a signal that no private interpreter can handle, and that would end "
        "the process; use threading.Timer."
    )


# The stock function, for a process that is there to see whether an import crashes.
report_crashes = faulthandler.enable


def _guard_faulthandler() -> None:
    stock_later = faulthandler.dump_traceback_later

    def enable(*_args: Any, **_kwargs: Any) -> None:
        """Stands in for ``faulthandler.enable`` and ``disable``."""
        warnings.warn(
            "interpool: faulthandler.enable() and disable() have no effect in here: the handlers of fatal "
            "signals belong to the whole process. Enable it in the host.",
            RuntimeWarning,
            stacklevel=2,
        )

    def register(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise ValueError(
            "signal handlers belong to the whole process; inside a private interpreter none can be set. "
            "Call faulthandler.register in the host."
        )

    def dump_traceback_later(*args: Any, **kwargs: Any) -> None:
        if kwargs.get("exit", len(args) > 3 and args[3]):
            raise ValueError("exit=True would end the process, and with it all its models.")
        stock_later(*args, **kwargs)

    faulthandler.enable = faulthandler.disable = enable
    faulthandler.register = register
    faulthandler.dump_traceback_later = dump_traceback_later


def _guard_recursion() -> None:
    stock = sys.setrecursionlimit

    def setrecursionlimit(limit: int, /) -> None:
        """Stands in for ``sys.setrecursionlimit``."""
        if limit > DEEPEST_RECURSION:
            warnings.warn(
                f"interpool: a recursion limit of {limit} is taken as {DEEPEST_RECURSION}: code that goes "
                "deeper could overflow its thread's stack, which ends the process and all its models.",
                RuntimeWarning,
                stacklevel=2,
            )
            limit = DEEPEST_RECURSION
        stock(limit)

    sys.setrecursionlimit = setrecursionlimit
