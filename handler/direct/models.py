"""The models of the direct address, by name and version. For the event loop's thread alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from interpool.handler.direct.examples import Examples
from interpool.handler.direct.job import Refusal
from interpool.handler.direct.queue import ModelQueue
from interpool.handler.direct.traffic import DirectState, Traffic


def model_not_found(name: str) -> Refusal:
    """TorchServe's answer for a name that is not registered."""
    return Refusal(404, "ModelNotFoundException", f"Model not found: {name}")


@dataclass
class ModelVersion:
    """A version of a model.

    Attributes:
        name: the name that it is registered by.
        version: its archive's version.
        queue: the queue of its requests.
        examples: its archive's description of its requests.
        directory: the directory into which its archive is extracted; "" if that does not matter.
        traffic: the counts of its answers.
        places: the number of its workers that are kept beside TorchServe's, those whose load failed included.
    """

    name: str
    version: str
    queue: ModelQueue
    examples: Examples = field(default_factory=Examples)
    directory: str = ""
    traffic: Traffic = field(default_factory=Traffic)
    places: int = 0

    @property
    def is_healthy(self) -> bool:
        """Whether it has all of its workers."""
        return len(self.queue.workers) >= self.queue.wanted


class Models:
    """All models. The first version of a name is its default until ``set_default`` chooses another one.

    Args:
        is_complete: see below.

    Attributes:
        is_complete: whether all models are there that are to be served now.
        is_draining: whether the server is about to end.
        has_failed: whether none can answer again before the process is restarted.
    """

    def __init__(self, is_complete: bool = True) -> None:
        self.is_complete = is_complete
        self.is_draining = False
        self.has_failed = False
        self._versions: dict[str, dict[str, ModelVersion]] = {}
        self._default: dict[str, str] = {}

    def __iter__(self) -> Iterator[ModelVersion]:
        for versions in self._versions.values():
            yield from versions.values()

    @property
    def is_ready(self) -> bool:
        """Whether each default version is there, with all of its workers."""
        usable = self.is_complete and not self.is_draining and not self.has_failed
        return usable and all(each.is_healthy for each in self.defaults())

    def describe(self, address: str) -> DirectState:
        """The state of an address that has these models. Any thread."""
        every = [model for versions in tuple(self._versions.values()) for model in tuple(versions.values())]
        return {
            "address": address,
            "models": [
                model.traffic.describe(f"{model.name}/{model.version}", len(model.queue)) for model in every
            ],
        }

    def add(self, model: ModelVersion) -> None:
        """Add a model; it replaces one of the same name and version."""
        self._versions.setdefault(model.name, {})[model.version] = model
        self._default.setdefault(model.name, model.version)

    def remove(self, model: ModelVersion) -> None:
        """Remove a model, unless another one has replaced it."""
        versions = self._versions.get(model.name, {})
        if versions.get(model.version) is model:
            del versions[model.version]
        if not versions:
            self._versions.pop(model.name, None)
            self._default.pop(model.name, None)

    def set_default(self, name: str, version: str) -> None:
        """Set the version that answers requests which name none.

        Args:
            name: the model's name.
            version: the version; it may be added later.
        """
        self._default[name] = version

    def default(self, name: str) -> ModelVersion | None:
        """The version of a name that answers requests which name none; None if there is no such name."""
        return self._versions.get(name, {}).get(self._default.get(name, ""))

    def defaults(self) -> Iterator[ModelVersion]:
        """The version of each name that answers requests which name none."""
        for name, versions in self._versions.items():
            if model := versions.get(self._default[name]):
                yield model

    def find(self, name: str, version: str | None) -> ModelVersion:
        """The model that answers a request.

        Args:
            name: the model's name.
            version: its version; None: the default version.

        Raises:
            Refusal: there is no such model, or no such version.
        """
        versions = self._versions.get(name)
        if versions is None:
            raise model_not_found(name)
        if version is None:
            version = self._default[name]
        found = versions.get(version)
        if found is None:
            raise Refusal(
                404,
                "ModelVersionNotFoundException",
                f"Model version: {version} does not exist for model: {name}",
            )
        return found
