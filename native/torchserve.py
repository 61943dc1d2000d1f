"""TorchServe's defaults that several layers need."""

from __future__ import annotations

import shlex

ADDRESSES = {"inference_address": "http://127.0.0.1:8080", "management_address": "http://127.0.0.1:8081"}
MOST_REQUEST_BYTES = 6_553_500  # unless max_request_size says more
MOST_RESPONSE_BYTES = 6_553_500  # likewise max_response_size


def for_curl(address: str) -> tuple[str, str]:
    """An address of TorchServe's for curl: the option that it needs, and the URL before the path."""
    kind, _, path = address.partition(":")
    return (f"--unix-socket {shlex.quote(path)} ", "http://localhost") if kind == "unix" else ("", address)
