"""The metric that TorchServe logs of each batch: the same line in one step, or by all of TorchServe's."""

from __future__ import annotations

import pytest
from interpool_testing import Code

from interpool.handler.torchserve import installed_ts

INSIDE = """
import contextlib, functools, logging, os, re, sys, unittest.mock
import interpool.handler.backend.service
from interpool.handler.backend import metrics, plain_logging, stdio
from ts.metrics import caching_metric
from ts.metrics.caching_metric import CachingMetric
from ts.metrics.dimension import Dimension
from ts.metrics.metric_cache_abstract import MetricCacheAbstract
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from ts.metrics.metric_type_enum import MetricTypes

class Stock(metrics.ModelMetrics):
    add_time = MetricCacheAbstract.add_time

replaced = functools.partial(unittest.mock.patch.object, create=True)

def said(cls, config, prepare, arguments):
    cache = cls.of_model("m", config)
    cache.request_ids = {0: "a", 1: "b"}
    exec(prepare, globals(), dict(cache=cache))
    there, here = os.pipe()
    try:
        with stdio.to_worker(here, here):
            try:
                eval(f"cache.add_time({arguments})", globals(), dict(cache=cache))
                outcome = "done"
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
        os.write(here, b".")
        lines = os.read(there, 1 << 16).decode()
    finally:
        os.close(there)
        os.close(here)
    return outcome, re.sub(r",[0-9]{10}", "", lines), sorted(cache.cache_keys())

def both(config, change="contextlib.nullcontext()", prepare="", arguments="'PredictionTime', 1.5"):
    with eval(change):
        return [said(cls, config, prepare, arguments) for cls in (Stock, metrics.ModelMetrics)]

def steps(config):
    '''How many of TorchServe's functions have run.'''
    ran = []
    folder = os.path.dirname(caching_metric.__file__)
    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            ran.append(frame.f_code.co_name)
    found = []
    for cls in (Stock, metrics.ModelMetrics):
        cache = cls.of_model("m", config)
        cache.request_ids = {0: "a"}
        there, here = os.pipe()
        with stdio.to_worker(here, here):
            sys.setprofile(profile)
            try:
                ran.clear()
                cache.add_time("PredictionTime", 1.5)
            finally:
                sys.setprofile(None)
            found.append(len(ran))
        os.close(there)
        os.close(here)
    return found
"""


CONFIG = str(installed_ts() / "configs" / "metrics.yaml")


@pytest.mark.parametrize(
    "arguments",
    [
        "'PredictionTime', 1.5",
        "'PredictionTime', 0",
        "'PredictionTime', 'text'",
        "'Mine', 2.25",
        "'PredictionTime', 1, 0",
        "'PredictionTime', 1, 7",
        "'PredictionTime', 1, unit='s'",
        "'PredictionTime', 1, unit='h'",
        "'PredictionTime', 1, dimensions=[Dimension('Of', 'mine')]",
        "'PredictionTime', 1, metric_type=MetricTypes.COUNTER",
        "name='PredictionTime', value=1",
        "3, 1",
        "[], 1",
    ],
)
def test_a_time_is_logged_as_torchserve_logs_it(code: Code, arguments: str) -> None:
    stock, ours = code.call("both", CONFIG, arguments=arguments)
    assert ours == stock


@pytest.mark.parametrize(
    "prepare",
    [
        "cache.request_ids = None",
        "cache.request_ids = {}",
        "cache.request_ids = {0: ''}",
        "cache.request_ids = {0: 1}",
        "cache.request_ids = 'a'",
        "cache.model_name = None",
        "cache.cache.clear()",
        "del cache.cache[MetricTypes.GAUGE]['PredictionTime']",
        "cache.cache[MetricTypes.GAUGE]['PredictionTime'].dimension_names.append('Mine')",
        "cache.cache[MetricTypes.GAUGE]['PredictionTime'].dimension_names = ['Level', 'ModelName']",
        "cache.cache[MetricTypes.GAUGE]['PredictionTime'].metric_type = MetricTypes.COUNTER",
        "cache.cache[MetricTypes.GAUGE]['PredictionTime'].unit = 'mine'",
        "cache.add_metric_to_cache('PredictionTime', 'ms', [], MetricTypes.GAUGE)",
        "cache.add_time = lambda *_: print('mine')",
    ],
)
def test_a_model_may_change_its_metrics(code: Code, prepare: str) -> None:
    stock, ours = code.call("both", CONFIG, prepare=prepare)
    assert ours == stock


@pytest.mark.parametrize(
    "change",
    [
        "replaced(MetricCacheAbstract, '_get_req', lambda self, index: 'mine')",
        "replaced(MetricsCacheYamlImpl, 'get_metric', lambda *_: CachingMetric('mine', 'ms', ['A', 'B']))",
        "replaced(CachingMetric, 'emit_metrics', lambda *_: print('mine'))",
        "replaced(CachingMetric, 'add_or_update', lambda *_: print('mine'))",
        "replaced(Dimension, '__str__', lambda self: 'mine')",
        "replaced(caching_metric, 'Dimension', lambda *_: 'mine')",
        "replaced(caching_metric, 'logger', logging.getLogger('mine'))",
        "replaced(caching_metric.socket, 'gethostname', lambda: 'mine')",
        "replaced(logging.Logger, 'info', lambda *_, **__: print('mine'))",
    ],
)
def test_a_models_replacements_of_torchserves_metrics_count(code: Code, change: str) -> None:
    for _ in range(2):
        stock, ours = code.call("both", CONFIG, change)
        assert ours == stock
    stock, ours = code.call("both", CONFIG)
    assert ours == stock
    assert "mine" not in ours[1]


def test_a_replaced_add_time_of_the_base_is_what_runs(code: Code) -> None:
    change = "replaced(MetricCacheAbstract, 'add_time', lambda *_: print('mine'))"
    assert code.call("both", CONFIG, change)[1][1].startswith("mine\n")


def test_usual_metrics_take_one_call(code: Code) -> None:
    stock, ours = code.call("steps", CONFIG)
    assert stock > 5
    assert ours <= 1  # the name of the enumeration's member, perhaps
