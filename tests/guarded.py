"""Servers with a certificate and with tokens: what is made for them, and how they are asked."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.request
from pathlib import Path

import local_server
from local_server import JSON, Answer, TorchServe


def certified(folder: Path) -> tuple[Path, Path]:
    """A new key, and its own certificate for this machine."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


def token(server: TorchServe, kind: str) -> str:
    """TorchServe's token for inference or management, or to make others (``API``)."""
    return str(json.loads((server.root / "key_file.json").read_text())[kind]["key"])


def ask(
    method: str,
    url: str,
    *,
    token: str | None = None,
    body: bytes | None = None,
    certificate: Path | None = None,
) -> Answer:
    """An answer to a request with that token. ``certificate``: the one that is trusted."""
    headers = {"Content-Type": JSON} if body else {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    context = ssl.create_default_context(cafile=certificate) if certificate else None
    return local_server.ask(urllib.request.Request(url, body, headers, method=method), 120, context)
