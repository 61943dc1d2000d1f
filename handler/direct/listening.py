"""Where the direct address listens, as people write it: ``HOST:PORT``, or ``unix:PATH``."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from typing import Self

from interpool.handler.errors import SettingsError

BACKLOG = 4096


@dataclass(frozen=True)
class Address:
    """An address to listen at.

    Attributes:
        host: a name or an IP address; "" for a unix socket.
        port: of the host.
        path: of the unix socket; "" if it is none.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of_text(cls, text: str) -> Self:
        """As people write it; raises SettingsError."""
        kind, colon, path = text.partition(":")
        if kind == "unix" and colon:
            if not os.path.isabs(path):
                raise SettingsError(
                    f"the direct address {text!r} must be an absolute path: unix:/run/direct.sock"
                )
            return cls(path=path)
        host, _, port = text.rpartition(":")
        if not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise SettingsError(
                f"the direct address {text!r} must be HOST:PORT, as in 127.0.0.1:8090, or unix:/PATH"
            )
        return cls(host.strip("[]") or "127.0.0.1", int(port))

    def __str__(self) -> str:
        """As people write it."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.path or self.host == "localhost":
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    def listen(self) -> socket.socket:
        """Listen there; raises OSError."""
        if self.path:
            return self._listen_at_path()
        family, kind, protocol, _, where = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener

    def _listen_at_path(self) -> socket.socket:
        """A socket that a host has left is removed; a file of another kind is not."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(self.path, follow_symlinks=False).st_mode):
                os.unlink(self.path)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(self.path)
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener
