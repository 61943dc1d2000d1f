"""Changes what belongs to its process, and asks what came of it."""

import json
import logging
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

os.environ["SET_AT_IMPORT"] = "1"
CHILD = "import os; print(os.environ['SET_BY_INITIALIZE'], os.path.basename(os.getcwd()))"


class Environment:
    def initialize(self, context):
        os.environ["SET_BY_INITIALIZE"] = "two"
        os.environ.pop("OMP_DYNAMIC", None)
        self.start = os.getcwd()
        os.makedirs("data", exist_ok=True)
        os.chdir("data")
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        warnings.simplefilter("ignore")
        logging.getLogger().setLevel(logging.ERROR)
        sys.setrecursionlimit(1234)
        self.argv = list(sys.argv)

    def handle(self, data, context):
        warnings.warn("this is not shown", stacklevel=1)
        logging.getLogger("x").warning("nor this")
        logging.getLogger("x").error("but this")
        wish = data[0]["body"]
        answer = {
            "env": [os.environ.get("SET_AT_IMPORT"), os.environ.get("SET_BY_INITIALIZE")],
            "given": os.environ.get("GIVEN_TO_SERVER"),
            "cwd": os.path.relpath(os.getcwd(), self.start),
            "dtype": str(torch.get_default_dtype()),
            "threads": torch.get_num_threads(),
            "recursion": sys.getrecursionlimit(),
            "main": "__main__" in sys.modules,
            "argv": [name for name in self.argv if name.startswith("--")],
            "script": os.path.basename(self.argv[0]),
            "temporary": os.path.basename(tempfile.gettempdir()),
            "encoding": [sys.stdout.encoding, sys.getfilesystemencoding()],
            "platform": [sys.version_info[:2], sys.byteorder, sys.flags.optimize],
        }
        if "random" in wish:
            answer["random"] = [random.random(), np.random.rand(), torch.rand(1).item()]
        if "write" in wish:
            with open("written.txt", "a") as file:
                file.write(wish["write"])
            answer["written"] = Path(self.start, "data", "written.txt").read_text()
        if "child" in wish:
            import subprocess

            command = [
                sys.executable,
                "-c",
                CHILD,
            ]
            answer["child"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [json.dumps(answer)]
