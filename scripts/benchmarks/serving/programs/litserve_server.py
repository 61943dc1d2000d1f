"""A model of the serving benchmark on CPUs as LitServe's documentation says, if that is installed."""

from __future__ import annotations

import os

import litserve

from benchmarks.serving.models import BATCH_DELAY_MS, MODELS, build

NAME = os.environ["SERVING_MODEL"]
BATCH = MODELS[NAME].batch


class Api(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        self.model = build(NAME)

    # No annotations, as in its documentation: LitServe takes them for what the request's JSON is to be.
    def decode_request(self, request):  # type: ignore[no-untyped-def]
        return request

    def predict(self, x):  # type: ignore[no-untyped-def]
        return self.model.answer_all(x) if BATCH > 1 else self.model.answer(x)

    def encode_response(self, output):  # type: ignore[no-untyped-def]
        return output


if __name__ == "__main__":
    server = litserve.LitServer(
        Api(max_batch_size=BATCH, batch_timeout=BATCH_DELAY_MS / 1000),
        accelerator="cpu",
        workers_per_device=int(os.environ["SERVING_WORKERS"]),
        timeout=120,
        fast_queue=True,  # as its documentation advises for throughput
    )
    server.run(
        host="127.0.0.1",
        port=int(os.environ["SERVING_PORT"]),
        log_level="warning",
        generate_client_file=False,
    )
