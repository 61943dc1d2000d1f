"""Errors of the serving side, below ``InterpoolError``, and what each error means to an HTTP client.

ServeError
├── OverlayError      no overlay for the installed TorchServe can be made
├── HostStartError    the pool host cannot start
├── ServerEnded       TorchServe has ended while it was starting
├── SettingsError     a setting is unknown or has a value that it cannot have
│   └── NameRefused   a name in an archive's manifest leads out of the model's directory
├── WorkerRefused     the pool host does not take this worker
│   └── WorkerGone    its worker of TorchServe's has ended (interpool.handler.direct.host_link)
├── NotPoolable       an ordinary archive's model needs a process of its own
├── InputError        a request's input cannot be used
└── AnswerTooLarge    an answer is larger than TorchServe takes

No other code makes an HTTP status of an exception: that of a registration
(``load_failure_code``), and that of a request (``predict_failure_code``):

===========================================  ============  ==========================================
exception                                    registration  request
===========================================  ============  ==========================================
ArchiveError: damaged, unsigned, refused, …  400           400: the model was to be loaded for it
SettingsError                                400           400: likewise
InputError                                   500           400, and for this request of a batch alone
AnswerTooLarge                               500           503, likewise
lack of memory                               507           507
a call that took longer than it may          500           500, as TorchServe's own for that
any other                                    500           503; 500 if the model was to be loaded
===========================================  ============  ==========================================

A request that was answered already, and comes again, has no exception: ``native/cpp/core/connection.cc``
fails it with 500.
"""

from __future__ import annotations

import sys

from interpool.native.errors import ArchiveError, InterpoolError

CALL_LIMIT_CODE = 500  # of a request whose call took longer than it may


class ServeError(InterpoolError):
    """Something on the serving side failed."""


class OverlayError(ServeError):
    """No overlay for the installed TorchServe can be made."""


class HostStartError(ServeError):
    """The pool host cannot start."""


class ServerEnded(ServeError):
    """TorchServe has ended while it was starting."""


class SettingsError(ServeError):
    """A setting is unknown or has a value that it cannot have."""


class NameRefused(SettingsError):
    """A name in an archive's manifest leads out of the model's directory."""


class WorkerRefused(ServeError):
    """The pool host does not take this worker; the message goes to its model log."""


class NotPoolable(ServeError):
    """An ordinary archive's model cannot share a process with others: it needs one of its own."""


class InputError(ServeError):
    """A request's input cannot be used: that request answers 400, others are not affected."""


class AnswerTooLarge(ServeError):
    """An answer is larger than TorchServe's max_response_size: that request answers 503, and no other."""


def out_of_memory(error: BaseException) -> bool:
    """Whether memory was lacking: by the error's type, as its text may hold any word of a client's."""
    torch = sys.modules.get("torch")  # who never imported it never raised its errors
    return isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError))


def load_failure_code(error: BaseException) -> int:
    """The status of a load that raised ``error``: TorchServe answers a registration with it.

    507 for lack of memory, as TorchServe does, which looks at a RuntimeError's text only: a torch
    without CUDA says so by an AssertionError. 400 for an archive or a setting that is at
    fault, as TorchServe answers a damaged .mar; 500 otherwise. The text of that answer is TorchServe's
    own, not the worker's: the reason stands in the model log.
    """
    if isinstance(error, InterpoolError):
        return 400 if isinstance(error, (ArchiveError, SettingsError)) else 500
    return 507 if out_of_memory(error) or _says_cuda(error) else 500


def _says_cuda(error: BaseException) -> bool:
    try:
        return isinstance(error, RuntimeError) and "CUDA" in str(error)
    except BaseException:  # noqa: BLE001 -- a foreign __str__
        return False


def predict_failure_code(error: BaseException) -> int:
    """The status of a request that ended with ``error``: TorchServe's own 507 and 503, 400 for its input."""
    if out_of_memory(error):
        return 507
    return 400 if isinstance(error, InputError) else 503
