"""Checks TorchServe's tokens: its key file has the one that an inference needs, and its expiration time."""

from __future__ import annotations

import datetime as dt
import hmac
import json
import os
import re
from pathlib import Path
from typing import Any

from interpool.handler.direct.job import Refusal

KEY_FILE = "key_file.json"  # in the directory that TorchServe was started in
_BEARER = re.compile(rb"Bearer\s+(\S+)")


class KeyFile:
    """The keys in TorchServe's key file, which is read again when TorchServe has written it anew.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, tuple[str, dt.datetime | None]] = {}

    def guard(self, headers: dict[bytes, bytes]) -> None:
        """Check the token of a request for an inference.

        Args:
            headers: the request's headers, by their names in lower case.

        Raises:
            Refusal: the token is missing, wrong or expired.
        """
        bearer = _BEARER.fullmatch(headers.get(b"authorization", b""))
        key, until = self._key("inference")
        given = bearer[1] if bearer else b""
        if not key or not hmac.compare_digest(given, key.encode()) or _is_over(until):
            raise Refusal(
                400,
                "InvalidKeyException",
                "Token Authorization failed. Token either incorrect, expired, or not provided correctly",
            )

    def management(self) -> str:
        """The key for the management interface; "" if there is none."""
        return self._key("management")[0]

    def _key(self, kind: str) -> tuple[str, dt.datetime | None]:
        try:
            found = os.stat(self._path)
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                document: Any = json.loads(self._path.read_text(encoding="utf-8"))
                self._keys = {
                    name: (str(entry["key"]), _instant(entry.get("expiration time")))
                    for name, entry in document.items()
                }
                self._seen = seen
        except FileNotFoundError:
            self._keys, self._seen = {}, None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass  # TorchServe is writing the file: it still accepts the keys that were there before
        return self._keys.get(kind, ("", None))


def _instant(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)


def _is_over(until: dt.datetime | None) -> bool:
    return until is not None and dt.datetime.now(dt.UTC) >= until
