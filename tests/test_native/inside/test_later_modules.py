"""Modules of other packages that torch imports are imported when torch first uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interpool_testing import printed

BINDINGS = "import sys\nsys.modules['imported ' + __name__] = sys\nanswer = 42\n"
PROGRAM = """
import json
import sys

from interpool.native import InterpreterManager

LOOK = '''
import sys
import torch.cuda._utils as utils

def at_first():
    found = [name in sys.modules for name in ("imported cuda.bindings.runtime", "cuda.bindings")]
    return [utils._HAS_CUDA_BINDINGS, *found]

def used():
    runtime = utils._cuda_bindings_runtime
    runtime.answer
    assert utils._cuda_bindings_runtime is sys.modules["cuda.bindings.runtime"] is not runtime
    return [runtime.answer, hasattr(runtime, "absent"), "answer" in dir(runtime), runtime.__name__]

def imported():
    from cuda.bindings import driver, runtime
    import cuda
    return [driver is sys.modules["cuda.bindings.driver"], runtime.answer, cuda.bindings.runtime is runtime]
'''

with InterpreterManager(2) as manager:
    _, second = manager.all_instances()
    with second.acquire_session() as session:
        names = session.global_("builtins", "dict")()
        session.global_("builtins", "exec")(LOOK, names)
        said = [names.attr("get")(name)().to_value() for name in ("at_first", "used", "imported")]
print(json.dumps(said))
"""


def test_a_cuda_builds_bindings_are_imported_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cuda" / "bindings"
    package.mkdir(parents=True)
    for name in ("__init__", "driver", "runtime"):
        (package / f"{name}.py").write_text(BINDINGS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert json.loads(printed(PROGRAM)) == [
        [True, False, False],
        [42, False, True, "cuda.bindings.runtime"],
        [True, 42, True],
    ]
