"""Answers requests in an ordinary Python process, from a recipe's source.

Run as ``python -P scripts/reference.py RECIPE_DIR``, with a JSON list of request bodies on
stdin: ``{"json": value}`` or ``{"base64": bytes}``. Prints a JSON list of answers. What the pool
answers is compared with this; nothing of interpool is imported here.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from typing import Any


def body(request: dict[str, Any]) -> Any:
    """A request's body as TorchServe hands it to a handler."""
    return request["json"] if "json" in request else base64.b64decode(request["base64"])


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    model = importlib.import_module("project.factory").build()
    requests = json.load(sys.stdin)
    answers = [model.handle([{"body": body(request)}], None)[0] for request in requests]
    if "interpool" in sys.modules:
        raise SystemExit("interpool was imported, so this is no independent reference")
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
