"""TorchServe's metrics, safe for more than one model in a process."""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

from ts.metrics.caching_metric import CachingMetric
from ts.metrics.dimension import Dimension
from ts.metrics.metric_cache_abstract import MetricCacheAbstract
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from ts.metrics.metric_type_enum import MetricTypes
from ts.service import PREDICTION_METRIC

import _interpool
from interpool.handler.backend import plain_logging, stdio

_GAUGE = MetricTypes.GAUGE
_USUAL_DIMENSIONS = ["ModelName", "Level"]


class ModelMetrics(MetricsCacheYamlImpl):  # type: ignore[misc]
    """The metrics cache of one model.

    TorchServe appends a model's dimensions to a default argument, so the metrics of every later model would
    have the first model's name.
    """

    @classmethod
    def of_model(cls, model_name: str, metrics_config: str) -> ModelMetrics:
        """Make a model's cache, with the metrics that TorchServe's configuration file declares.

        Args:
            model_name: the name that the model is registered by.
            metrics_config: path of TorchServe's metrics configuration.
        """
        metrics = cls(config_file_path=metrics_config)
        metrics.initialize_cache()
        metrics.model_name = model_name
        return metrics

    def _add_default_dims(self, idx: str | None, dimensions: list[Dimension]) -> list[Dimension]:
        return list(super()._add_default_dims(idx, list(dimensions)))

    def add_time(self, name: str, value: float, *args: Any, **keywords: Any) -> None:
        """Log a time.

        What TorchServe's Service logs of each batch takes one step, if no model has changed how it is logged.

        Args:
            name: of the metric.
            value: the time, in milliseconds unless a unit is given.
            *args: further arguments of TorchServe's method.
            **keywords: its keyword arguments.
        """
        if args or keywords or not self._logged_plainly(name, value):
            super().add_time(name, value, *args, **keywords)

    def _logged_plainly(self, name: str, value: float) -> bool:
        """Whether the line that TorchServe makes of a time in milliseconds has been held, and that is all."""
        ids = self.request_ids
        if type(name) is not str or type(ids) is not dict or not _is_stock():
            return False
        metric, whose = self.cache.get(_GAUGE, {}).get(name), ",".join(ids.values())
        if (
            type(metric) is not CachingMetric
            or metric.metric_type is not _GAUGE
            or metric.dimension_names != _USUAL_DIMENSIONS
            or not whose
        ):
            return False
        if name == PREDICTION_METRIC and not stdio.has_notes():
            return plain_logging.metrics_are_plain()
        what = f"{metric.metric_name}.{metric.unit}:{value}|#ModelName:{self.model_name},Level:Model"
        where = f"#hostname:{socket.gethostname()},{int(time.time())}"
        return plain_logging.metric(f"[METRICS]{what}|#type:GAUGE|{where},{whose}")


_is_stock = _interpool.watched(
    (MetricsCacheYamlImpl, "add_time"),
    (MetricsCacheYamlImpl, "get_metric"),
    (MetricsCacheYamlImpl, "_check_type"),
    (MetricsCacheYamlImpl, "_get_req"),
    (MetricsCacheYamlImpl, "_get_or_add_metric"),
    (MetricCacheAbstract, "_add_default_dims"),
    (CachingMetric, "add_or_update"),
    (CachingMetric, "emit_metrics"),
    (CachingMetric, "_validate_and_get_dimensions"),
    (CachingMetric, "_validate_metric_value"),
    (Dimension, "__init__"),
    (Dimension, "__str__"),
    (sys.modules[CachingMetric.__module__], "Dimension"),
)
