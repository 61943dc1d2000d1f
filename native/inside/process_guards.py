"""Keeps a model in a private interpreter from changing the process for other models.

Some settings of the process are refused, ignored, limited, or kept per interpreter. They are signals, timers,
faulthandler, the recursion limit, the locale, the time zone, the standard descriptors and autograd's anomaly
mode. C++ code isolates the settings that libtorch keeps per process. ``docs/process.md`` lists all of them.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import _interpool
from interpool.native.inside.refusals import refused
from interpool.native.upstream.cpython_private import replace_setlocale
from interpool.native.upstream.torch_private import replace_anomaly_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    _Text = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# At a higher limit, recursion through C could overflow a stack of 8 MiB, which ends the process. A nested
# sort needs 2.5 KiB for each level, and 5 on 3.13. (3.12 and 3.14 check the stack themselves.)
DEEPEST_RECURSION = 1500 if sys.version_info[:2] == (3, 13) else 3000


def install() -> None:
    """Install the guards. Call once per interpreter, after torch was imported."""
    _guard_anomaly_mode()
    _guard_signals()
    _guard_faulthandler()
    _guard_recursion()
    _guard_locale()
    _guard_time_zone()
    _guard_standard_descriptors()


def _guard_anomaly_mode() -> None:
    enabled = False

    def set_anomaly_enabled(value: bool, check_nan: bool = True) -> None:
        """Override of ``torch.set_anomaly_enabled``: on in the process while any interpreter wants it."""
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
        """Override of ``torch.is_anomaly_enabled``."""
        return enabled

    replace_anomaly_mode(set_anomaly_enabled, is_anomaly_enabled)


def _guard_signals() -> None:
    stock_getsignal, stock_alarm, stock_setitimer = signal.getsignal, signal.alarm, signal.setitimer
    requested: dict[int, Any] = {}

    def set_handler(signalnum: int, handler: Any) -> Any:
        """Override of ``signal.signal``: stores the handler for ``getsignal``, and never calls it."""
        if not (callable(handler) or handler in (signal.SIG_IGN, signal.SIG_DFL)):
            raise TypeError("signal handler must be signal.SIG_IGN, signal.SIG_DFL, or a callable object")
        before = getsignal(signalnum)  # raises if it is no signal
        _warn_of("signal.signal()", refuses=True)
        requested[int(signalnum)] = handler
        return before

    def getsignal(signalnum: int) -> Any:
        """Override of ``signal.getsignal``."""
        stock = stock_getsignal(signalnum)
        return requested.get(int(signalnum), stock)

    def set_wakeup_fd(fd: int, /, *, warn_on_full_buffer: bool = True) -> int:
        """Override of ``signal.set_wakeup_fd``."""
        if fd != -1:
            _warn_of("signal.set_wakeup_fd()", refuses=True)
        return -1

    def siginterrupt(signalnum: int, flag: bool, /) -> None:
        """Override of ``signal.siginterrupt``: only checks its argument."""
        stock_getsignal(signalnum)

    def alarm(seconds: int) -> int:
        if seconds:
            _refuse_timer()
        return stock_alarm(seconds)

    def setitimer(which: int, seconds: float, interval: float = 0.0) -> tuple[float, float]:
        if seconds:
            _refuse_timer()
        return stock_setitimer(which, seconds, interval)

    signal.signal, signal.getsignal = set_handler, getsignal
    signal.set_wakeup_fd = set_wakeup_fd
    signal.siginterrupt = siginterrupt
    signal.alarm = alarm
    signal.setitimer = setitimer


def _warn_of(function: str, *, refuses: bool = False) -> None:
    """Warn the caller's caller that its call has no effect; with ``refuses``, also record a refusal."""
    text = (
        f"interpool: {function} has no effect in here: the process serves many models, and the host handles "
        "its signals. Use atexit for functions that run at the end, and set signal handlers in the host."
    )
    warnings.warn(refused(text) if refuses else text, RuntimeWarning, stacklevel=3)


def _refuse_timer() -> NoReturn:
    raise ValueError(
        refused(
            "the process's timer ends in a signal that no private interpreter can handle, and that would "
            "end the process; use threading.Timer."
        )
    )


# The stock function, for a trial process that must report a crash.
report_crashes = faulthandler.enable


def _guard_faulthandler() -> None:
    stock_later = faulthandler.dump_traceback_later

    def enable(*_args: Any, **_kwargs: Any) -> None:
        """Override of ``faulthandler.enable`` and ``disable``."""
        _warn_of("faulthandler.enable() or disable()")

    def register(*_args: Any, **_kwargs: Any) -> None:
        """Override of ``faulthandler.register``."""
        _warn_of("faulthandler.register()", refuses=True)

    def dump_traceback_later(*args: Any, **kwargs: Any) -> None:
        if kwargs.get("exit", len(args) > 3 and args[3]):
            raise ValueError("exit=True would end the process, and with it all its models.")
        stock_later(*args, **kwargs)

    faulthandler.enable = faulthandler.disable = enable
    faulthandler.register = register
    faulthandler.dump_traceback_later = dump_traceback_later


def _guard_standard_descriptors() -> None:
    stock_close, stock_dup2 = os.close, os.dup2
    standard = range(3)

    def warn(function: str) -> None:
        text = (
            f"interpool: {function} has no effect in here: it would close or replace files that all models "
            "of the process share, such as its standard streams. Each model has its own sys.stdout."
        )
        warnings.warn(refused(text), RuntimeWarning, stacklevel=3)

    def close(fd: int) -> None:
        """Override of ``os.close``."""
        if fd in standard:
            warn(f"os.close({fd})")
        else:
            stock_close(fd)

    def dup2(fd: int, fd2: int, inheritable: bool = True) -> int:
        """Override of ``os.dup2``."""
        if fd2 not in standard:
            return stock_dup2(fd, fd2, inheritable)
        os.fstat(fd)  # raises if it is no descriptor
        warn(f"os.dup2({fd}, {fd2})")
        return fd2

    def closerange(fd_low: int, fd_high: int, /) -> None:
        """Override of ``os.closerange``, with no effect: any range could include other models' files."""
        if fd_low < fd_high:
            warn(f"os.closerange({fd_low}, {fd_high})")

    os.close, os.dup2, os.closerange = close, dup2, closerange


def _guard_recursion() -> None:
    stock = sys.setrecursionlimit

    def setrecursionlimit(limit: int, /) -> None:
        """Override of ``sys.setrecursionlimit``."""
        if limit > DEEPEST_RECURSION:
            warnings.warn(
                f"interpool: a recursion limit of {limit} is taken as {DEEPEST_RECURSION}. Code that goes "
                "deeper could overflow its thread's stack, which ends the process and all its models.",
                RuntimeWarning,
                stacklevel=2,
            )
            limit = DEEPEST_RECURSION
        stock(limit)

    sys.setrecursionlimit = setrecursionlimit


def _guard_locale() -> None:
    def read_only(
        stock: Callable[[int, str | None], str], locale_error: type[Exception]
    ) -> Callable[..., str]:
        def setlocale(category: int, requested: str | None = None, /) -> str:
            """Override of ``locale.setlocale``."""
            now = stock(category, None)
            if requested is not None and requested not in ("", now):
                raise locale_error(
                    refused(
                        f"the locale {requested!r} would apply to the whole process, and to all its models; "
                        f"it is {now!r}. Set it in the host, before the pool starts (LC_ALL, for a server)."
                    )
                )
            return now

        return setlocale

    replace_setlocale(read_only)


def _guard_time_zone() -> None:
    """Keep a model's ``TZ`` in its own ``os.environ``: C code such as ``mktime`` reads the process's."""
    stock_putenv, stock_unsetenv, stock_tzset = os.putenv, os.unsetenv, time.tzset
    now = os.environ.get("TZ")

    def putenv(name: _Text, value: _Text, /) -> None:
        """Override of ``os.putenv``, which ``os.environ`` calls."""
        if os.fsdecode(name) != "TZ":
            stock_putenv(name, value)

    def unsetenv(name: _Text, /) -> None:
        """Override of ``os.unsetenv``, which ``os.environ`` calls."""
        if os.fsdecode(name) != "TZ":
            stock_unsetenv(name)

    def tzset() -> None:
        """Override of ``time.tzset``."""
        requested = os.environ.get("TZ")
        if requested != now:
            raise RuntimeError(
                refused(
                    f"the time zone {requested!r} would apply to the whole process, and to all its models; "
                    f"it is {now!r}. Set TZ in the host, before the pool starts, or use zoneinfo."
                )
            )
        stock_tzset()

    os.putenv, os.unsetenv, time.tzset = putenv, unsetenv, tzset
