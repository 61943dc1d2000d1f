"""Serves the models that a configuration names, one by one: a fault of one leaves the others alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from interpool.handler.errors import ServeError, SettingsError
from interpool.handler.run.fetching import fetched, shown
from interpool.handler.run.options import Options
from interpool.handler.run.serving import Serving
from interpool.native.errors import InterpoolError

# Seconds before models that were refused are tried again: their storage may have been out of reach.
BACK_OFF_S = (30.0, 60.0, 120.0, 300.0, 600.0)
_OPTIONS = tuple(field.name for field in fields(Options))

logger = logging.getLogger("interpool.direct")


@dataclass(frozen=True)
class Wanted:
    """An archive, and how it is served.

    Attributes:
        url: the URL of the archive, or its path.
        options: options that override the archive's own settings.
    """

    url: str
    options: Options

    @classmethod
    def of(cls, name: str, value: object) -> Wanted:
        """Parse a configuration's entry for a model.

        Args:
            name: the model's name.
            value: a URL or path, or a mapping with one as ``url`` and with fields of ``Options``.

        Raises:
            SettingsError: it is neither, or has an unknown or wrong setting.
        """
        given = {"url": value} if isinstance(value, str) else value
        if not isinstance(given, Mapping) or not isinstance(given.get("url"), str):
            raise SettingsError(f"the model {name!r} needs the path or URL of an archive, not {value!r}")
        if unknown := given.keys() - {"url", *_OPTIONS}:
            raise SettingsError(
                f"the model {name!r} has the unknown setting {min(map(str, unknown))!r}; "
                f"the settings are: url, {', '.join(_OPTIONS)}"
            )
        try:
            options = Options.of({key: value for key, value in given.items() if key != "url"})
        except SettingsError as error:
            raise SettingsError(f"the model {name!r}: {error}") from None
        return cls(given["url"], options)


class Reconciler:
    """Serves the wanted models, and tries again those that fail. For the event loop's thread.

    Args:
        serving: the models; it must be open.

    Attributes:
        served: the archives that are served, by name.
        refused: why other models are not served, or not as wanted, by name.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._lock = asyncio.Lock()
        self._retrying: asyncio.Task[None] | None = None
        self.served: dict[str, Wanted] = {}
        self.refused: dict[str, str] = {}

    async def apply(self, models: Mapping[str, Any]) -> None:
        """Serve these models, and no others. If one cannot be served, an earlier model of its name goes on.

        Args:
            models: by name, a URL, or a mapping with ``url`` and options; see ``Wanted``.

        Raises:
            ServeError: models are wanted, and none is served.
        """
        async with self._lock:
            self.close()  # not before: a retry that is serving a model ends first
            gone = self.served.keys() - models.keys()
            self.refused = {}
            await asyncio.gather(*map(self._remove, gone), *(self._bring(*each) for each in models.items()))
            if models and not self.served:
                raise ServeError("; ".join(self.refused.values()))
            if self.refused:
                self._retrying = asyncio.create_task(self._retry(models))

    def close(self) -> None:
        """Stop trying refused models again."""
        if self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None

    async def _remove(self, name: str) -> None:
        del self.served[name]
        await self._serving.remove(name)

    async def _bring(self, name: str, value: object) -> None:
        """Serve a model as wanted, or note why it is not."""
        try:
            wanted = Wanted.of(name, value)
            if self.served.get(name) == wanted:
                return
            await self._serve(name, wanted)
        except Exception as error:
            goes_on = "; the one before goes on" if name in self.served else ""
            self.refused[name] = f"model {name!r} is not served as wanted{goes_on}: {error}"
            logger.error("%s", self.refused[name], exc_info=not isinstance(error, InterpoolError))
        else:
            self.refused.pop(name, None)

    async def _serve(self, name: str, wanted: Wanted) -> None:
        fetching = fetched(wanted.url)
        path = await asyncio.to_thread(fetching.__enter__)
        try:
            await self._serving.add(name, path, wanted.options)
        finally:
            await asyncio.to_thread(fetching.__exit__, None, None, None)
        self.served[name] = wanted
        logger.info("model %r is served from %s", name, shown(wanted.url))

    async def _retry(self, models: Mapping[str, Any]) -> None:
        attempts = 0
        while self.refused:
            await asyncio.sleep(BACK_OFF_S[min(attempts, len(BACK_OFF_S) - 1)])
            attempts += 1
            async with self._lock:
                await asyncio.gather(*(self._bring(name, models[name]) for name in tuple(self.refused)))
