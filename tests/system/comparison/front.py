"""The one handler that the comparisons of the front end's features serve, in three ways."""

from __future__ import annotations

import atexit
import enum
import functools
import json
import re
import shutil
import tempfile
import zipfile
from pathlib import Path

from local_server import TorchServe
from stock_archiver import MAKING, wrap
from system.comparison.archive import HANDLERS, Archive
from system.comparison.building import build
from system.comparison.exchange import plain

from interpool.archiver_ext.packing.pack import pack
from interpool.handler import interpool_handler


class Way(enum.Enum):
    """How the handler is archived. Both are served in the pool if there is one."""

    ORDINARY = "ordinary"
    HERMETIC = "hermetic"


def make(way: Way, name: str, store: Path, *, config: str = "", version: str = "1.0") -> str:
    """Makes an archive in a model store; gives its file's name."""
    if way is Way.ORDINARY:
        archive = Archive(name, "handler.py", [], [], folder="front", config=config, version=version)
        return build(archive, store).name
    with MAKING, tempfile.TemporaryDirectory(prefix="ip-mar-") as temporary:
        settings = Path(temporary) / "model-config.yaml"
        settings.write_text(config)
        return wrap(
            name,
            str(interpool_handler.__file__),
            store,
            version,
            serialized_file=_packed(),
            config_file=settings if config else None,
        )


@functools.cache
def _packed() -> Path:
    folder = tempfile.mkdtemp(prefix="ip-front-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "front.ptpkg"
    pack("handler:Front", path, root=HANDLERS / "front")
    return path


WORKFLOW = """
import json


def text_of(value):
    return bytes(value).decode() if isinstance(value, (bytes, bytearray)) else json.dumps(value)


def prepare(data, context):
    if data is None:
        return None
    return [json.dumps({"prepared": text_of(row.get("body") or row.get("data"))}) for row in data]


def finish(data, context):
    if data is None:
        return None
    return [{name: text_of(value) for name, value in row.items()} for row in data]
"""


def make_workflow(name: str, archive: str, store: Path) -> str:
    """Makes a workflow of two functions around a model; gives its file's name."""
    dag = {"prepare": ["middle"], "middle": ["finish"]}
    return write_workflow(name, {"middle": archive}, dag, store, WORKFLOW)


def write_workflow(
    name: str, archives: dict[str, str], dag: dict[str, list[str]], store: Path, functions: str = ""
) -> str:
    """Writes a workflow's archive; gives its file's name.

    Args:
        name: of the workflow.
        archives: the models' archives in the store, by the names of their nodes.
        dag: the nodes that get each node's answer.
        store: where it is to lie.
        functions: the Python source of the nodes that are functions.
    """
    usual = {"min-workers": 1, "max-workers": 1, "batch-size": 1, "max-batch-delay": 10}
    models = {**usual, **{node: {"url": archive} for node, archive in archives.items()}}
    manifest = {
        "createdOn": "01/01/2026 00:00:00",
        "runtime": "python",
        "workflow": {"workflowName": name, "specFile": "workflow.yaml", "handler": "functions.py"},
        "archiverVersion": "0.2.15",
    }
    with zipfile.ZipFile(store / f"{name}.war", "w") as war:
        war.writestr("workflow.yaml", json.dumps({"models": models, "dag": dag}))
        war.writestr("functions.py", functions)
        war.writestr("WAR-INF/MANIFEST.json", json.dumps(manifest))
    return f"{name}.war"


def comparable(server: TorchServe, text: str) -> str:
    """What the management interface says, without what differs between any two servers."""
    return re.sub(r'"(jobQueueStatus)": \{[^}]*\}', r'"\1": VARIES', plain(server, text))
