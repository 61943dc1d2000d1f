"""Notes that this process has lost its GPU: CUDA answers every call with the same error until its end.

Possible causes are an index out of range in a kernel (a device-side assert) and an illegal address. From then
on, every model of the process that uses the GPU fails, even if another model was the cause. Other errors,
such as a lack of memory, are temporary.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from interpool.handler.backend.error_text import one_line

# The errors after which the process must be ended, as CUDA's own header says (driver_types.h of CUDA 13.0).
_FOR_GOOD = frozenset({226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911})

_lost = ""


def note(error: BaseException) -> None:
    """Note that the GPU is lost, if an error or one of its causes means that.

    CUDA's libraries say only that they have failed, so this also asks CUDA itself.
    """
    global _lost
    torch = sys.modules.get("torch")
    if torch is None or _lost:
        return
    raised = [each for each in _chain(error) if isinstance(each, RuntimeError)]
    if raised and torch.cuda.is_initialized():
        raised += _asked(torch)
    said = next((each for each in raised if getattr(each, "error_code", None) in _FOR_GOOD), None)
    if isinstance(said, torch.AcceleratorError):
        _lost = one_line(str(said).partition("\n")[0])


def noting(entry_point: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that ``note`` gets its errors; stacks do not show that. In interpreters only."""
    import _interpool

    call = functools.partial(_interpool.call_noting, note, entry_point)
    return functools.update_wrapper(call, entry_point)


def lost_device() -> str:
    """What CUDA said when this process lost its GPU; "" if no loss was noted in this interpreter."""
    return _lost


def _asked(torch: Any) -> list[RuntimeError]:
    """CUDA's errors for a query that takes microseconds, for each GPU that is in use here."""
    answers = []
    for number in range(torch.cuda.device_count()):
        try:
            if torch.cuda.memory_reserved(number):  # the query would make a context on any other
                torch.cuda.mem_get_info(number)
        except RuntimeError as error:
            answers.append(error)
    return answers


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
