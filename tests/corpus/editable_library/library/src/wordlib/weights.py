import json
import sys
from pathlib import Path

_registry = {}


def register(function):
    _registry[function.__name__] = function
    return function


@register
def scale():
    return json.loads((Path(__file__).parent / "scale.json").read_text())["scale"]


def named(name):
    return sys.modules[__name__]._registry[name]
