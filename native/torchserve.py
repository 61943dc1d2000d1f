"""TorchServe's own defaults that a client of it needs, too: for each layer that tells what to send where."""

from __future__ import annotations

ADDRESSES = {"inference_address": "http://127.0.0.1:8080", "management_address": "http://127.0.0.1:8081"}
MOST_BYTES = 6_553_500  # of a request and of an answer, unless max_request_size, max_response_size say more
