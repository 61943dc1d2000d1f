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
│   ├── StructureError       it is not the zip that a packer writes
│   ├── ManifestError        its manifest is missing or invalid
│   ├── DigestError          its content does not match its manifest
│   ├── SignatureError       it is unsigned, or not signed by an accepted key
│   ├── ExternError          a module that it needs from the server is missing or too different
│   ├── PickleError          a pickle in it is damaged, or wrong about its weights
│   └── SelfTestError        it answers its example inputs differently than when it was made
├── ChildError               a child process gave no result (interpool.native.child_process)
├── PackError                (interpool.archiver_ext.errors)
└── ServeError               (interpool.handler.errors)

C++ has the classes that it raises or passes on (``INTERPOOL_ERRORS`` in
native/cpp/include/interpool/errors.h). A new one needs a class here and a line there.

Messages say what happened, on which file or model, and what to do next.
"""

from __future__ import annotations


class InterpoolError(Exception):
    """Root of all errors raised by interpool.

    An error can be recreated from its arguments, which are text if it crosses between interpreters.
    """


class ProvisioningError(InterpoolError):
    """A private copy of a shared library could not be made.

    Attributes:
        what: the problem.
        hint: the remedy, a sentence; "" if ``what`` is sufficient.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}. {self.hint}" if self.hint else self.what


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
    """A call exceeded its session's limit; the message has its stack."""


class InterpreterRetiredError(SessionError):
    """An interpreter was retired, because a call into it did not return."""


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
    """A hermetic archive is missing, damaged, or breaks a rule.

    Attributes:
        message: what happened and what to do, without the rule.
        rule: the rule's short name, such as ``duplicate-name``, or "".
    """

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message, rule)
        self.message = message
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.message} [{self.rule}]" if self.rule else self.message


class StructureError(ArchiveError):
    """An archive is not the zip that a packer writes."""


class ManifestError(ArchiveError):
    """An archive's manifest is missing or invalid."""


class DigestError(ArchiveError):
    """An archive's content does not match its manifest."""


class SignatureError(ArchiveError):
    """An archive is unsigned, or not signed by an accepted key."""


class ExternError(ArchiveError):
    """A module that an archive needs from the server is missing or too different."""


class PickleError(ArchiveError):
    """A pickle in an archive is damaged, or wrong about the archive's weights."""


class SelfTestError(ArchiveError):
    """A model answers its example inputs differently than when it was packed."""
