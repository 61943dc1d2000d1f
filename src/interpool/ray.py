"""Archives as a deployment of Ray Serve: each replica is one pool, which all of its models share.

``serve.run(interpool.ray.app({"price": "s3://models/price.mar"}))``
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve import Application

    from interpool.handler.direct.application import Application as Asgi

__all__ = ["Replica", "app", "build"]

_NAME = "interpool"


def app(
    models: Mapping[str, Any], *, request_bytes: int | None = None, options: Mapping[str, Any] | None = None
) -> Application:
    """A deployment of Ray Serve whose replicas are pools, bound for ``serve.run`` or for another deployment.

    Args:
        models: by the names that clients ask for: the path or URL of an archive, or a mapping with
            ``url`` and any of ``workers``, ``batch_size``, ``batch_delay_ms``, ``queue_size``,
            ``response_timeout_s``, ``client_timeout_s`` and ``service_envelope``. They become the
            deployment's ``user_config``.
        request_bytes: the most that a request's body may have; by default 6,553,500.
        options: Ray's own, of the deployment, such as ``num_replicas``, ``autoscaling_config`` and
            ``ray_actor_options``. A replica has an interpreter for each of its CPUs.

    Returns:
        The application.

    Raises:
        SettingsError: a model's entry, or ``request_bytes``, cannot be.
        ServeError: Ray Serve is missing.
    """
    from interpool.handler.errors import ServeError
    from interpool.handler.run.serving import limits_of
    from interpool.handler.run.wanted import Wanted

    limits_of(request_bytes)
    for name, value in models.items():
        Wanted.of(name, value)
    try:
        from ray import serve
    except ImportError as error:
        raise ServeError(f"{error.name} is missing: pip install 'interpool[ray]'") from None
    usual = {
        "name": _NAME,
        "max_replicas_per_node": 1,
        "max_ongoing_requests": 100,
        "user_config": {"models": dict(models)},
    }
    deployment = serve.deployment(serve.ingress()(Replica), **{**usual, **(options or {})})
    return deployment.bind(request_bytes)


def build(models: dict[str, Any]) -> Application:
    """``app`` as Ray's configuration files and command line call it, with ``args`` as the models."""
    return app(models)


class Replica:
    """What a replica does, whose ASGI application is that of ``interpool.asgi``. Ray makes it.

    Args:
        request_bytes: the most that a request's body may have; None: the default.
    """

    def __init__(self, request_bytes: int | None = None) -> None:
        from ray import get_runtime_context

        from interpool.handler.config import HostSettings
        from interpool.handler.host.start import prepare_process
        from interpool.handler.run.options import Options
        from interpool.handler.run.ray_metrics import RayMetrics
        from interpool.handler.run.serving import Serving, application, limits_of
        from interpool.handler.run.wanted import Reconciler

        prepare_process()
        _log_as_ray_does()
        cpus = int(get_runtime_context().get_assigned_resources().get("CPU", 1))
        environment = {"INTERPOOL_INTERPRETERS": str(min(max(cpus, 1), 256)), **os.environ}
        self._metrics = RayMetrics()
        settings = HostSettings.of_environment(environment)
        self._serving = Serving({}, Options(), settings, self._metrics.traffic)
        self._application = application(self._serving, limits_of(request_bytes))
        self._reconciler = Reconciler(self._serving)

    def __serve_build_asgi_app__(self) -> Asgi:
        """The application that answers HTTP; Ray opens its lifespan, and with it the pool."""
        return self._application

    async def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Serve the models of a ``user_config``, ``{"models": {...}}``, and no others.

        A model that cannot be served leaves the others, and the one of its name before it, as they are.

        Raises:
            ServeError: none of the models is served; Ray then gives up the replica.
        """
        models = user_config.get("models") if isinstance(user_config, Mapping) else None
        if not isinstance(models, Mapping):
            said = f"the user_config of interpool needs `models`, by name, not {user_config!r}"
            if not self._reconciler.served:
                from interpool.handler.errors import SettingsError

                raise SettingsError(said)
            logging.getLogger("interpool.ray").error("%s; the models stay as they are", said)
            return
        await self._reconciler.apply(models)

    async def check_health(self) -> None:
        """Raise what ``interpool status --check`` would say of models that are served and not ready.

        Ray asks as often as it exports metrics, every ten seconds, so the queues' lengths are noted here.
        """
        from interpool.handler.errors import ServeError

        self._metrics.show_waiting(self._serving.models)
        if reasons := await asyncio.to_thread(self._serving.why_not_ready):
            raise ServeError("; ".join(reasons))

    async def predict(self, model: str, value: Any, version: str | None = None) -> Any:
        """Have a model answer, as over HTTP.

        Args:
            model: its name.
            value: an array; tensors, alone or in dicts and lists; text, bytes, and what JSON can say.
            version: of the model; by default the one that is served.

        Returns:
            What the answer's JSON says; a text; or bytes, as of a handler that names no content type, or
            whose text is not UTF-8.

        Raises:
            InputError: the request cannot be used.
            ServeError: there is no such model, or it has failed.
        """
        from interpool.handler.run.asking import ask

        return await ask(self._application, model, value, version)

    def models(self) -> dict[str, dict[str, str]]:
        """What this replica serves and from where, and what it refuses and why, each by name."""
        from interpool.handler.run.fetching import shown

        served = {name: shown(wanted.url) for name, wanted in self._reconciler.served.items()}
        return {"served": served, "refused": dict(self._reconciler.refused)}


def _log_as_ray_does() -> None:
    """Have the lines of interpool's loggers where a deployment's own are."""
    theirs, ours = logging.getLogger("ray.serve"), logging.getLogger("interpool")
    ours.handlers, ours.propagate = theirs.handlers, False
    ours.setLevel(theirs.level or logging.INFO)
