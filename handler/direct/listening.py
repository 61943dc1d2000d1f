"""The address at which the direct address listens, as users write it: ``HOST:PORT``, or ``unix:PATH``."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from typing import Any, Self

from interpool.handler.errors import ServeError, SettingsError


@dataclass(frozen=True)
class Address:
    """An address to listen at.

    Attributes:
        host: a name or an IP address; "" for a unix socket.
        port: the TCP port; 0 for any free one, or for a unix socket.
        path: the path of the unix socket; "" if it is none.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parse an address as users write it.

        Raises:
            SettingsError: it is malformed.
        """
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
        """The address as users write it."""
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

    def bind(self) -> list[socket.socket]:
        """Sockets that are bound there, and do not listen yet: one for each IP address of the host's name.

        A socket file that an ended process has left at the path is removed. One at which a process listens
        is not, nor is a file of another kind.

        Raises:
            OSError: none of the IP addresses can be bound, or another socket has one of them.
        """
        if self.path:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(os.stat(self.path, follow_symlinks=False).st_mode):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)
                if _is_left(self.path):
                    os.unlink(self.path)
            return [_bound(socket.AF_UNIX, self.path)]
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        places = list(dict.fromkeys((family, where) for family, _, _, _, where in found))
        bound: list[socket.socket] = []
        absent = None
        try:
            for family, where in places:
                try:
                    # Port 0 means any free port, and the same one for all addresses.
                    port = bound[0].getsockname()[1] if bound else where[1]
                    bound.append(_bound(family, (where[0], port, *where[2:]), only_v6=len(places) > 1))
                except OSError as error:
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    absent = error  # this machine has IPv4 or IPv6 only
            if absent is not None and not bound:
                raise absent
        except BaseException:
            for each in bound:
                each.close()
            raise
        return bound

    def try_out(self) -> None:
        """Bind the address, and release it again; raises OSError as ``bind`` does."""
        for bound in self.bind():
            bound.close()
        if self.path:
            os.unlink(self.path)

    def not_had(self, error: OSError) -> ServeError:
        """The error for people, if ``bind`` has raised this one."""
        return ServeError(f"the address {self} cannot be had: {error.strerror or error}. Name another one")


def _is_left(path: str) -> bool:
    """Whether no process listens at a unix socket any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)  # else it would wait while that server has no room for another client
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
    return False


def _bound(family: int, where: tuple[Any, ...] | str, *, only_v6: bool = False) -> socket.socket:
    """A socket with an address; raises OSError."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and only_v6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(where)
    except BaseException:
        bound.close()
        raise
    return bound
