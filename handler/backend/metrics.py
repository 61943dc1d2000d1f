"""TorchServe's metrics, safe for more than one model in a process."""

from __future__ import annotations

from ts.metrics.dimension import Dimension
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl


class ModelMetrics(MetricsCacheYamlImpl):  # type: ignore[misc]
    """The metrics cache of one model.

    TorchServe appends a model's dimensions to a default argument, so that the first model's
    name would stand in every later model's metrics.
    """

    @classmethod
    def of_model(cls, model_name: str, metrics_config: str) -> ModelMetrics:
        """The cache with the metrics that TorchServe's configuration file declares."""
        metrics = cls(config_file_path=metrics_config)
        metrics.initialize_cache()
        metrics.model_name = model_name
        return metrics

    def _add_default_dims(self, idx: str | None, dimensions: list[Dimension]) -> list[Dimension]:
        return list(super()._add_default_dims(idx, list(dimensions)))
