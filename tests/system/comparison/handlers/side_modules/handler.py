"""Modules, packages and data beside the handler, reached in every way that works in a folder."""

import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import sys
from pathlib import Path

import helpers.deep
import utils
from helpers import names
from helpers.deep import reach

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
import hidden  # noqa: E402


class SideModules:
    def initialize(self, context):
        directory = context.system_properties["model_dir"]
        self.relative = Path("labels.txt").read_text().split()
        self.absolute = (Path(directory) / "labels.txt").read_text().split()
        self.by_resource = pkgutil.get_data("helpers", "table.json").decode().strip()
        spec = importlib.util.spec_from_file_location("by_path", os.path.join(directory, "lib", "by_path.py"))
        self.by_path = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.by_path)
        self.late = importlib.import_module("helpers.late")
        sys.path.append(directory)
        self.facts = {
            "cwd is the model's directory": os.path.samefile(os.getcwd(), directory),
            "file is in it": os.path.samefile(HERE, directory),
            "relative": self.relative,
            "absolute": self.absolute,
            "resource": self.by_resource,
            "by path": self.by_path.WORD,
            "late": self.late.WORD,
            "hidden": hidden.WORD,
            "utils": utils.WORD,
            "names": names.NAMES,
            "reach": reach() == helpers.deep.reach(),
            "name": __name__,
            "modules": [type(self).__module__, utils.__name__, helpers.deep.__name__],
            "in sys.modules": [name in sys.modules for name in ("utils", "helpers.deep", __name__)],
            "is the module": sys.modules[__name__].__dict__ is globals(),
            "source": inspect.getsource(utils).splitlines()[0],
            "listed": sorted(name for name in os.listdir(".") if name != "__pycache__"),
            "found": [os.path.basename(utils.__file__), importlib.util.find_spec("utils") is not None],
            "walk": sorted(module.name for module in pkgutil.iter_modules(helpers.__path__)),
        }

    def handle(self, data, context):
        facts = dict(self.facts, again=Path("labels.txt").read_text().split())
        facts["lazy"] = importlib.import_module("helpers.lazy").WORD
        return [json.dumps(facts, indent=1)] * len(data)
