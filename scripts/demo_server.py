"""The demo's TorchServe."""

from __future__ import annotations

import os
import shutil
import sys
import urllib.parse
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "support"))

from local_server import TorchServe

BIN = Path(sys.executable).parent


class DemoError(Exception):
    """Something that the demo started did not do its part."""


class Server(TorchServe):
    """TorchServe with interpool's overlay, in the background.

    Args:
        store: the directory of .mar files.
    """

    def __init__(self, store: Path) -> None:
        interpreters = {"INTERPOOL_INTERPRETERS": str(os.cpu_count() or 1)}
        super().__init__(environment=interpreters, prefix="ip-demo-", store=store)

    def leave(self, *, keep_logs: bool) -> None:
        """Stop it as a user would, and leave nothing of it but, if asked, its logs."""
        try:
            self.stop()
        finally:
            if keep_logs:
                print(f"the server's logs are kept in {self.logs}")
            for path in (self.tmp, self.runtime) if keep_logs else (self.root,):
                shutil.rmtree(path, ignore_errors=True)

    def call(self, method: str, url: str, body: bytes | None = None, content_type: str = "") -> Any:
        """The JSON of an answer; raises DemoError with what the server said if it refused."""
        answer = self.request(method, url, body, content_type or None, timeout=120)
        if answer.status != 200:
            raise DemoError(f"{method} {url} was answered {answer.status}: {answer.text.strip()}")
        return answer.json

    def register_url(self, archive: str, **query: object) -> str:
        """The URL whose POST registers an archive of the store."""
        return f"{self.management}/models?" + urllib.parse.urlencode({"url": archive, **query})
