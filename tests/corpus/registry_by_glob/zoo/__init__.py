import glob
from importlib import import_module
from os.path import basename, dirname, isfile, join

from .registry import MODELS

__all__ = ["MODELS"]

for _file in glob.glob(join(dirname(__file__), "*.py")):
    _name = basename(_file)[:-3]
    if isfile(_file) and not _name.startswith("_") and _name != "registry":
        import_module("zoo." + _name)
