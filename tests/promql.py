"""Which metrics a PromQL expression asks for, and by which labels: read by a parser of the language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from paths import ROOT

DASHBOARD = ROOT / "configs/grafana/interpool.json"
RULES = ROOT / "configs/prometheus/alerts.yml"


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric that is asked for, and the labels that it is chosen by."""
    # Grafana puts a duration there.
    yield from _walk(promql_parser.parse(expression.replace("$__rate_interval", "1m")))


def _walk(node: Any) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name, {matcher.name for matcher in node.matchers.matchers}
    for name in ("expr", "lhs", "rhs", "vector_selector", "args", "param"):
        inner = getattr(node, name, None)
        for one in inner if isinstance(inner, list) else [inner]:
            if one is not None and not isinstance(one, str):
                yield from _walk(one)


def panels(dashboard: Path = DASHBOARD) -> Iterator[tuple[str, str]]:
    """Title and expression of everything that the dashboard's panels ask."""
    for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def variables(dashboard: Path = DASHBOARD) -> Iterator[tuple[str, str]]:
    """Name and query of each of the dashboard's variables that Prometheus answers."""
    for variable in json.loads(dashboard.read_text(encoding="utf-8"))["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def alerts(rules: Path = RULES) -> Iterator[tuple[str, str]]:
    """Name and expression of each alert."""
    for group in yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
