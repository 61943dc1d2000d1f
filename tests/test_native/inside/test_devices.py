"""A device that all interpreters of a pool use: right numbers, and one copy of weights.

What needs no GPU runs on the CPU, too.
"""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import device_guest
import pytest
import torch
from interpool_testing import Code, assert_clean, every_interpreter, printed, run_program, together

from interpool.native import InterpreterManager, InterpreterSession

needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_a_gpu)]
MB = 1e6


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def guest(session: InterpreterSession, function: str) -> Any:
    call = session.global_("device_guest", function)
    return lambda *arguments: call(*arguments).to_value()


@pytest.mark.parametrize(
    ("work", "device"),
    [
        *((work, "cpu") for work in ("recurrent", "cholesky", "gradient")),
        *(pytest.param(work, "cuda", marks=needs_a_gpu) for work in device_guest.WORKS),
    ],
)
def test_all_interpreters_at_once_compute_what_plain_python_does_on_the_cpu(
    manager: InterpreterManager, device: str, work: str
) -> None:
    expected = torch.tensor(device_guest.numbers(work, "cpu"))
    times = 10 if device == "cuda" else 3
    with every_interpreter(manager) as sessions:
        works = [partial(guest(session, "numbers"), work, device, times) for session in sessions]
        found = together([*works, partial(device_guest.numbers, work, device, times)])
    for each in found:
        torch.testing.assert_close(torch.tensor(each), expected, rtol=2e-3, atol=2e-3)


def test_a_generator_of_ones_own_draws_the_same_numbers_beside_others(
    manager: InterpreterManager, device: str
) -> None:
    seeds = [7, 7, 8, 9]
    with every_interpreter(manager) as sessions:
        pairs = zip(sessions, seeds, strict=True)
        draws = [partial(guest(session, "drawn"), seed, device, 50) for session, seed in pairs]
        found = together(draws)
    assert found == [device_guest.drawn(seed, device, 50) for seed in seeds]


def test_weights_that_one_puts_on_the_device_are_there_once_for_all(
    manager: InterpreterManager, device: str
) -> None:
    with every_interpreter(manager) as sessions:
        before = torch.cuda.mem_get_info()[0] if device == "cuda" else 0
        first, *others = sessions
        model = first.global_("device_guest", "net")(device)
        moved = first.create_movable(model)
        copies = [model, *(session.from_movable(moved) for session in others)]
        pairs = list(zip(sessions, copies, strict=True))
        places = [guest(session, "places")(copy) for session, copy in pairs]
        assert places == [places[0]] * 4
        answers = together([partial(guest(session, "answer"), copy, device, 20) for session, copy in pairs])
        assert answers == [pytest.approx(answers[0], rel=1e-3, abs=1e-4)] * 4
        if device == "cuda":
            taken = before - torch.cuda.mem_get_info()[0]
            weights = 4096 * 4096 * 4
            assert taken < 2 * weights + 100 * MB, f"{taken / MB:.0f} MB"
        del pairs, copies, model, moved


def test_interpreters_see_each_others_writes_and_the_last_frees_the_memory(
    manager: InterpreterManager, device: str
) -> None:
    count = 1 << 20
    allocated = torch.cuda.memory_allocated if device == "cuda" else lambda: 0
    with every_interpreter(manager, 3) as (one, other, third):
        before = allocated()
        tensor = one.global_("device_guest", "made")(device, count)
        moved = one.create_movable(tensor)
        there = other.from_movable(moved)
        again = third.from_movable(moved)
        total = count * (count - 1) / 2
        assert guest(other, "add")(there, 1.0) == pytest.approx(total + count, rel=1e-6)
        assert guest(one, "add")(tensor, 1.0) == pytest.approx(total + 2 * count, rel=1e-6)
        del tensor, moved, there
        assert guest(third, "add")(again, 0.0) == pytest.approx(total + 2 * count, rel=1e-6)
        del again
    with every_interpreter(manager) as sessions:
        for session in sessions:
            Code(session, "import gc; gc.collect()")
    assert allocated() == before


def test_tensors_go_in_and_answers_come_out_on_the_device(manager: InterpreterManager, device: str) -> None:
    with manager.acquire_session() as session:
        given = torch.arange(4.0, device=device)
        found = session.global_("torch", "mul")(given, 2.0).to_value()
        assert found.device == given.device
        assert found.tolist() == [0.0, 2.0, 4.0, 6.0]
        same = session.global_("torch", "detach")(given).to_value()
        assert same.data_ptr() == given.data_ptr()


def test_autocast_is_the_callers_own(manager: InterpreterManager, device: str) -> None:
    with every_interpreter(manager) as sessions:
        found = together([partial(guest(session, "cast"), device, 50) for session in sessions])
    assert found == [[["torch.bfloat16"], ["torch.float32"]]] * 4


def test_a_file_of_torchs_is_loaded_onto_the_device(
    manager: InterpreterManager, device: str, tmp_path: Path
) -> None:
    model = device_guest.net("cpu")
    path = tmp_path / "state.pt"
    torch.save(model.state_dict(), path)
    expected = device_guest.answer(model, "cpu")
    with every_interpreter(manager, 2) as sessions:
        found = together([partial(guest(session, "load"), str(path), device) for session in sessions])
    assert found == [pytest.approx(expected, rel=2e-2, abs=1e-3)] * 2


@needs_a_gpu
def test_an_archive_whose_weights_were_packed_on_the_gpu_is_loaded_there(
    manager: InterpreterManager, tmp_path: Path
) -> None:
    path = tmp_path / "m.ptpkg"
    with torch.package.PackageExporter(str(path)) as exporter:
        exporter.extern("torch.**")
        exporter.save_pickle("model", "model.pkl", torch.nn.Linear(3, 2).cuda())
    with torch.no_grad(), every_interpreter(manager, 2) as sessions:
        expected = torch.package.PackageImporter(str(path)).load_pickle("model", "model.pkl")
        x = torch.ones(1, 3, device="cuda")
        for session in sessions:
            code = Code(
                session,
                """
                import torch
                from interpool.native.inside.packages import open_package
                def load(path, x):
                    model = open_package(path).load_pickle("model", "model.pkl")
                    return str(model.weight.device), model(x).tolist()
                """,
            )
            where, answer = code.call("load", str(path), x)
            assert where == "cuda:0"
            torch.testing.assert_close(torch.tensor(answer), expected(x).cpu())


@needs_a_gpu
def test_each_interpreter_has_streams_and_pinned_memory_of_its_own(manager: InterpreterManager) -> None:
    with every_interpreter(manager) as (*streams, copier):
        works = [partial(guest(session, "on_a_stream"), "cuda", 200) for session in streams]
        assert together([*works, partial(guest(copier, "pinned"), "cuda", 50)]) == [True] * 4


@needs_a_gpu
def test_a_graph_is_captured_and_replayed_while_others_run(manager: InterpreterManager) -> None:
    expected = device_guest.graph("cuda", 5)
    with every_interpreter(manager) as (one, *others):
        works = [partial(guest(session, "numbers"), "convolution", "cuda", 300) for session in others]
        sums, *_ = together([partial(guest(one, "graph"), "cuda", 5), *works])
    assert sums == pytest.approx(expected, rel=1e-3)


@needs_a_gpu
def test_an_interpreter_that_asks_for_too_much_memory_is_refused_alone_and_gives_it_back(
    manager: InterpreterManager,
) -> None:
    free, _total = torch.cuda.mem_get_info()
    ended = threading.Event()
    with every_interpreter(manager, 3) as (greedy, *others):

        def ask() -> Any:
            try:
                return guest(greedy, "ask_for_too_much")("cuda")
            finally:
                ended.set()

        def go_on(session: InterpreterSession) -> int:
            works = 0
            while not ended.is_set() or works < 20:
                guest(session, "numbers")("norm", "cuda", 1)
                works += 1
            return works

        guest(greedy, "numbers")("norm", "cuda", 1)
        (said, had), *works = together([ask, *(partial(go_on, session) for session in others)])
    assert said == "torch.OutOfMemoryError"
    assert had > free / 2
    assert min(works) >= 20
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > free - 2e9


LINEAR_ALGEBRA = """
import sys
from functools import partial
from interpool_testing import PATH, Code, every_interpreter, together
from interpool.native import InterpreterManager

with InterpreterManager(4) as pool, every_interpreter(pool) as sessions:
    for session in sessions:
        Code(session, f"import sys; sys.path[:0] = {PATH!r}")
    calls = [session.global_("device_guest", "numbers") for session in sessions]
    works = ["solve", "cholesky", "eigenvalues", "singular values"]
    together([partial(call, work, "cuda", 3) for call, work in zip(calls, works)])
"""


@needs_a_gpu
def test_all_interpreters_may_begin_with_linear_algebra_at_once() -> None:
    """Threads of a plain Python may not: torch loads it for the first, and refuses the others."""
    assert_clean(run_program(LINEAR_ALGEBRA))


NESTED = """
import sys
from interpool_testing import PATH, Code, every_interpreter
from interpool.native import InterpreterManager

with InterpreterManager(2) as pool, every_interpreter(pool) as sessions:
    for session in sessions:
        Code(session, f"import sys; sys.path[:0] = {PATH!r}")
        print(session.global_("device_guest", "nested")(100).to_value())
"""


@pytest.mark.long
def test_backward_passes_are_nested_deeply_in_every_interpreter() -> None:
    """Beyond a depth of 60, torch goes on in other threads, which each interpreter's engine has to have."""
    said = printed(NESTED)
    assert said.split() == ["3.0", "3.0"]


LOSES = """
import json, sys
from interpool_testing import PATH, Code, every_interpreter
from interpool.native import InterpreterManager

with InterpreterManager(2) as pool, every_interpreter(pool) as (one, other):
    for session in (one, other):
        Code(session, f"import sys; sys.path[:0] = {PATH!r}")
    call = lambda session, name, *arguments: session.global_("device_guest", name)(*arguments).to_value()
    call(other, "numbers", "norm", "cuda")
    said = call(one, "beyond_the_table", "cuda")
    after = [call(session, "after_that", "cuda") for session in (one, other)]
    on_cpu = call(other, "numbers", "norm", "cpu")
    noted = Code(
        other,
        '''if True:
        from interpool.handler.backend.lost_devices import lost_device, note
        before = lost_device()
        note(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))
        after = lost_device()
        ''',
    )
    noted = [noted["before"].to_value(), noted["after"].to_value()]
    print(json.dumps([said, after, len(on_cpu), noted]))
"""


@needs_a_gpu
def test_a_device_side_assert_loses_the_gpu_for_the_whole_process() -> None:
    """Why a pool host leaves: all models get the same error, with CUDA's number for it."""
    done = run_program(LOSES)
    assert done.returncode == 0, done.stderr
    said, after, rows, noted = json.loads(done.stdout.splitlines()[-1])
    assert said.startswith("AcceleratorError 710: CUDA error: device-side assert triggered")
    for each in after:
        assert each["copy"].startswith("AcceleratorError 710")
        assert each["synchronize"].startswith("AcceleratorError 710")
    assert rows == 16
    assert noted == ["", "CUDA error: device-side assert triggered"]
