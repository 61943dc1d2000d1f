"""CUDA in interpreters, as far as it goes without a device: as in plain Python, and no trouble to others.

It holds for builds of torch with CUDA and without.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from interpool_testing import Code, every_interpreter, printed, together
from mappings import mappings

from interpool.native import InterpreterManager

without_a_device = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")

# What code asks of CUDA, and what it asks for by name.
ASKED = [
    "torch.version.cuda",
    "torch.backends.cuda.is_built()",
    "torch.backends.cudnn.version()",
    "torch.cuda.is_available()",
    "torch.cuda.is_initialized()",
    "torch.cuda.device_count()",
    "torch.device(0)",
    "torch.zeros(1, device='cuda')",
    "torch.zeros(1, device=0)",
    "torch.zeros(1).to('cuda')",
    "torch.zeros(1).pin_memory()",
    "torch.nn.Linear(1, 1).cuda()",
    "torch.cuda.FloatTensor(1)",
    "torch.Generator('cuda')",
    "by_default('cuda')",
    "torch.cuda.init()",
    "torch.cuda.set_device(0)",
    "torch.cuda.current_stream()",
    "torch.cuda.Stream()",
    "torch.cuda.synchronize()",
    "torch.cuda.memory_allocated()",
    "torch.cuda.manual_seed(1)",
    "torch.cuda.get_rng_state()",
    "torch.cuda.nccl.version()",
    "torch.accelerator.is_available()",
    "torch.accelerator.current_accelerator()",
    "torch.accelerator.synchronize()",
    "torch.is_autocast_enabled('cuda')",
    "cast('cuda')",
    "torch.amp.GradScaler('cuda').is_enabled()",
    "torch.load(saved(), map_location='cuda')",
    "list(torch.utils.data.DataLoader([1.0], pin_memory=True))",
]
SOURCE = """
import io, re, warnings
import torch

def saved():
    file = io.BytesIO()
    torch.save(torch.ones(3), file)
    file.seek(0)
    return file

def cast(kind):
    with torch.autocast(kind):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

def by_default(device):
    torch.set_default_device(device)
    try:
        return torch.zeros(1)
    finally:
        torch.set_default_device(None)

def outcome(expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = repr(eval(expression, globals()))
        except Exception as error:
            found = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
    return re.sub("0x[0-9a-f]+", "0x", found)

def outcomes(expressions):
    return {expression: outcome(expression) for expression in expressions}

def work():
    return (torch.ones(3) * 2).sum().item(), str(torch.zeros(1).device)
"""


def _in_plain_python() -> dict[str, str]:
    said = printed(
        "import json, sys\n" + SOURCE + "\nprint(json.dumps(outcomes(json.loads(sys.argv[1]))))",
        json.dumps(ASKED),
    )
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.long
@without_a_device
def test_asking_for_cuda_says_what_plain_python_says(manager: InterpreterManager) -> None:
    threaded = """
def on_thread(expressions):
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(outcomes, expressions).result()
"""
    expected = _in_plain_python()
    with every_interpreter(manager, 3) as sessions:
        codes = [Code(session, SOURCE + threaded) for session in sessions]
        here: dict[str, Any] = {}
        exec(SOURCE, here)
        asks = [
            lambda: codes[0].call("outcomes", ASKED),
            lambda: codes[1].call("on_thread", ASKED),
            lambda: here["outcomes"](ASKED),  # the host, meanwhile
            lambda: [codes[2].call("work") for _ in range(50)],  # one that asks for nothing of the kind
        ]
        *refusals, undisturbed = together(asks)
        assert refusals == [expected] * 3
        assert undisturbed == [(6.0, "cpu")] * 50
        assert [code.call("work") for code in codes] == [(6.0, "cpu")] * 3


def test_a_default_device_is_that_of_the_call_that_chose_it(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as (one, other):
        code = Code(one, SOURCE)
        one.global_("torch", "set_default_device")("meta")
        assert [code.call("work"), Code(other, SOURCE).call("work")] == [(6.0, "cpu")] * 2
        assert str(torch.zeros(1).device) == "cpu"
        one.global_("torch", "set_default_device")(None)
        assert code.call("work") == (6.0, "cpu")


def test_no_library_that_torch_brings_is_in_memory_twice(manager: InterpreterManager) -> None:
    assert manager
    files = defaultdict(set)
    for mapping in mappings():
        if ".so" in mapping.name:
            files[Path(mapping.name).name].add(mapping.file)
    places = [Path(torch.__file__).parent / "lib", Path(torch.__file__).parents[1] / "nvidia"]
    brought = {file.name for place in places for file in place.rglob("*.so*")} & files.keys()
    assert "libtorch_cpu.so" in brought
    assert {"libtorch_cuda.so", "libc10_cuda.so"} <= brought or not torch.backends.cuda.is_built()
    # Each interpreter's own is what the rest is shared through.
    assert {name for name in brought if len(files[name]) > 1} == {"libtorch_python.so"}
