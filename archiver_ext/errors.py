"""The error of packing, a branch of the tree in interpool.native.errors."""

from __future__ import annotations

from interpool.native.errors import InterpoolError


class PackError(InterpoolError):
    """A model cannot be packed as requested; no file was written.

    If a line of the user's code is the cause, the message starts with it.

    Attributes:
        message: what happened and what to do.
        user_traceback: the traceback of the user's own code, or "".
    """

    def __init__(self, message: str, user_traceback: str = "") -> None:
        super().__init__(message, user_traceback)
        self.message = message
        self.user_traceback = user_traceback

    def __str__(self) -> str:
        if not self.user_traceback:
            return self.message
        return f"{self.message}\n\n{self.user_traceback.rstrip()}"
