"""Every error that interpool raises, in one tree.

InterpoolError
├── ProvisioningError        a private copy of a library could not be made
├── InterpreterStartError    an interpreter failed to start
├── SessionError             an interpreter, session or object was misused
│   ├── WrongInterpreterError
│   ├── SessionClosedError
│   ├── PoolClosedError
│   ├── LeaseTimeoutError
│   ├── CallTimeoutError
│   └── InterpreterRetiredError
├── ConversionError          a value cannot cross between interpreters
├── RemoteError              Python code inside an interpreter raised
├── ArchiveError             a hermetic archive is missing, damaged or refused
├── PackError                (interpool.archiver_ext.errors)
└── ServeError               (interpool.handler.errors)

Messages say what happened, on which file or model, and what to do next.
"""

from __future__ import annotations


class InterpoolError(Exception):
    """Root of all errors raised by interpool."""


class ProvisioningError(InterpoolError):
    """A private copy of a shared library could not be made."""


class InterpreterStartError(InterpoolError):
    """An interpreter failed to start; its slot is lost for this process."""


class SessionError(InterpoolError):
    """An interpreter, a session or one of its objects was misused."""


class WrongInterpreterError(SessionError):
    """An object of one interpreter was used in another."""


class SessionClosedError(SessionError):
    """An object was used after its session ended."""


class PoolClosedError(SessionError):
    """The interpreter manager was closed."""


class LeaseTimeoutError(SessionError):
    """No interpreter became free within the time limit."""


class CallTimeoutError(SessionError):
    """A call took longer than its session allows; says where it was."""


class InterpreterRetiredError(SessionError):
    """An interpreter was given up, because a call into it did not come back."""


class ConversionError(InterpoolError):
    """A value cannot cross between interpreters."""


class RemoteError(InterpoolError):
    """Python code inside an interpreter raised an exception.

    Attributes:
        type_name: qualified name of the exception's class, such as ``ValueError``.
        message: ``str()`` of the exception.
        traceback: the formatted traceback inside the interpreter.
    """

    def __init__(self, type_name: str, message: str, traceback: str) -> None:
        super().__init__(type_name, message, traceback)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}\n{self.traceback}".rstrip()


class ArchiveError(InterpoolError):
    """A hermetic archive is missing, damaged, or breaks a rule."""
