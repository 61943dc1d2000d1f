"""Archives as an ASGI application, for any ASGI server, or to be mounted into another application.

``app = interpool.asgi.app({"price": "price.ptpkg"})``
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from interpool.handler.direct.application import Application

__all__ = ["app"]


def app(
    archives: Mapping[str, str | os.PathLike[str]],
    *,
    interpreters: int | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    batch_delay_ms: int | None = None,
    queue_size: int | None = None,
    response_timeout_s: float | None = None,
    client_timeout_s: float | None = None,
    service_envelope: Literal["", "body", "json", "kserve", "kservev2"] = "",
    request_bytes: int | None = None,
) -> Application:
    """An ASGI application that answers TorchServe's inference API from a pool of its own.

    The pool starts and ends with the application's lifespan. An application that is mounted into another one
    gets no lifespan of its own: open ``app.lifespan()`` in the outer one's. A process has one at a time.

    Args:
        archives: a .mar, a .tar.gz, a .ptpkg or an extracted archive's directory, by the model's name.
        interpreters: in the pool; by default what the environment says, else one for each core.
        workers: of each model: batches that may be in flight.
        batch_size: the most requests in a batch; by default what the archive says, else 1.
        batch_delay_ms: milliseconds that a request waits for others of its batch; likewise, else 100.
        queue_size: the most requests of a model that wait for a worker; by default what the archive
            says, else 100.
        response_timeout_s: seconds that a batch may take; by default what the archive says, else 120.
        client_timeout_s: seconds after which a request that is not answered is refused with 408; by default
            what the archive says, else none.
        service_envelope: TorchServe's setting: the form of requests and answers; `kservev2` is that of the
            Open Inference Protocol.
        request_bytes: the most that a request's body may have; by default 6,553,500.

    Returns:
        The application.

    Raises:
        SettingsError: an option, or a setting of the environment, is not of its type or out of its range.
    """
    from interpool.handler.config import HostSettings
    from interpool.handler.run.options import Options
    from interpool.handler.run.serving import Serving, application, limits_of

    environment = dict(os.environ)
    if interpreters is not None:
        environment["INTERPOOL_INTERPRETERS"] = str(interpreters)
    settings = HostSettings.of_environment(environment)
    options = Options.of(
        {
            "workers": workers,
            "batch_size": batch_size,
            "batch_delay_ms": batch_delay_ms,
            "queue_size": queue_size,
            "response_timeout_s": response_timeout_s,
            "client_timeout_s": client_timeout_s,
            "service_envelope": service_envelope,
        }
    )
    paths = {name: Path(path) for name, path in archives.items()}
    return application(Serving(paths, options, settings), limits_of(request_bytes))
