"""torch's settings of the process: each model has its own in each interpreter, and so has the host."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import torch
from interpool_testing import Code, assert_clean, every_interpreter, run_program, together

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import LeaseTimeoutError, RemoteError

# What changes it, and what reads it.
SETTINGS = {
    "default dtype": ("torch.set_default_dtype(torch.float64)", "str(torch.ones(1).dtype)"),
    "deterministic algorithms": (
        "torch.use_deterministic_algorithms(True)",
        "torch.are_deterministic_algorithms_enabled()",
    ),
    "filling of new memory": (
        "torch.utils.deterministic.fill_uninitialized_memory = False",
        "torch.utils.deterministic.fill_uninitialized_memory",
    ),
    "matmul precision": (
        "torch.set_float32_matmul_precision('medium')",
        "torch.get_float32_matmul_precision()",
    ),
    "mkldnn precision": (
        "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
        "torch.backends.mkldnn.matmul.fp32_precision",
    ),
    "cudnn benchmark": ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark"),
    "checks of sparse tensors": (
        "torch.sparse.check_sparse_tensor_invariants.enable()",
        "torch.sparse.check_sparse_tensor_invariants.is_enabled()",
    ),
    "denormals": ("assert torch.set_flush_denormal(True)", "(torch.tensor([1e-30]) * 1e-10).item() == 0"),
    "number of threads": ("torch.set_num_threads(torch.get_num_threads() + 3)", "torch.get_num_threads()"),
    "seed": ("torch.manual_seed(1234)", "torch.initial_seed() == 1234"),
    "state of the generator": (
        "torch.set_rng_state(torch.Generator().manual_seed(1234).get_state())",
        "torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(1234)).item()",
    ),
}


@pytest.fixture
def names(manager: InterpreterManager) -> Iterator[list[str]]:
    """Names of two models that were never served, and will not be remembered."""
    made = [f"model {uuid.uuid4()}" for _ in range(2)]
    yield made
    for name in made:
        manager.forget(name)


def read(session: InterpreterSession, expression: str) -> Any:
    return Code(session, f"import torch\nvalue = {expression}")["value"].to_value()


def here(expression: str) -> Any:
    return eval(expression, {"torch": torch})


def lease_in(manager: InterpreterManager, model: str, which: int) -> InterpreterSession:
    """A session of that model in the pool's interpreter ``which``: all other free ones are held meanwhile."""
    instance = manager.all_instances()[which]
    while True:
        with ExitStack() as others:
            wanted = instance.acquire_session(timeout=60)
            with suppress(LeaseTimeoutError):
                while True:
                    others.enter_context(manager.acquire_session(timeout=0))
            wanted.close()
            session = manager.acquire_session(timeout=60, affinity=model)
        if session.interpreter_id == instance.interpreter_id:
            return session
        session.close()  # of another, which another thread gave back in between


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("change", "expression"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_models_setting_is_its_own(
    manager: InterpreterManager, names: list[str], change: str, expression: str
) -> None:
    before = here(expression)
    with lease_in(manager, names[0], 0) as first:
        fresh = read(first, expression)
        Code(first, f"import torch, warnings\nwarnings.simplefilter('ignore')\n{change}")
        changed = read(first, expression)
        assert changed != fresh
        assert here(expression) == before  # the host, on the same thread, while it stands
        with lease_in(manager, names[0], 1) as elsewhere:
            assert read(elsewhere, expression) == fresh
    assert here(expression) == before
    with lease_in(manager, names[1], 0) as neighbour:
        assert read(neighbour, expression) == fresh
    with lease_in(manager, "", 0) as anybody:
        assert read(anybody, expression) == fresh
    if "rand" not in expression:  # its generator has gone on by one
        with lease_in(manager, names[0], 0) as again:
            assert read(again, expression) == changed
    manager.forget(names[0])
    with lease_in(manager, names[0], 0) as reloaded:
        assert read(reloaded, expression) == fresh


def test_a_setting_of_the_hosts_stays_the_hosts(manager: InterpreterManager) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_default_dtype(torch.float64)
        with manager.acquire_session(timeout=60) as session:
            assert read(session, "str(torch.ones(1).dtype)") == "torch.float32"
            assert torch.ones(1).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.get_num_threads() == threads


def test_how_arithmetic_rounds_stays_the_threads_outside_and_the_calls_inside(
    session: InterpreterSession,
) -> None:
    libm = ctypes.CDLL("libm.so.6")  # it sets what both of the processor's units for floats do
    upward, nearest = (0x800, 1 / 3 + 2**-54), (0, 1 / 3)
    inside = "(__import__('ctypes').CDLL('libm.so.6').fegetround(), 1 / float('3'))"
    try:
        libm.fesetround(upward[0])
        assert read(session, inside) == nearest
        assert (libm.fegetround(), 1 / float("3")) == upward
    finally:
        libm.fesetround(nearest[0])
    Code(session, f"import ctypes; ctypes.CDLL('libm.so.6').fesetround({upward[0]})")
    assert (libm.fegetround(), 1 / float("3")) == nearest
    assert read(session, inside) == nearest


def test_a_session_without_an_affinity_starts_afresh(manager: InterpreterManager) -> None:
    with lease_in(manager, "", 0) as session:
        Code(session, "import torch; torch.set_default_dtype(torch.float64); torch.manual_seed(5)")
    with lease_in(manager, "", 0) as session:
        assert read(session, "str(torch.get_default_dtype())") == "torch.float32"
        assert read(session, "torch.initial_seed()") != 5


@pytest.mark.parametrize("where", ["fp32_precision", "cudnn.rnn.fp32_precision"])
def test_a_session_without_an_affinity_computes_as_exactly_as_a_new_process(
    manager: InterpreterManager, where: str
) -> None:
    with lease_in(manager, "", 0) as session:
        fresh = read(session, f"torch.backends.{where}")
        value = "ieee" if where.startswith("cudnn") else "tf32"
        Code(session, f"import torch; torch.backends.{where} = {value!r}")
        assert read(session, f"torch.backends.{where}") == value != fresh
    with lease_in(manager, "", 0) as session:
        assert read(session, f"torch.backends.{where}") == fresh


@pytest.mark.long
def test_a_model_that_has_used_up_the_files_keeps_no_other_from_a_session() -> None:
    assert_clean(
        run_program(
            """
            import os
            import torch
            from interpool import InterpreterManager
            with InterpreterManager(1) as pool:
                with pool.acquire_session(affinity="one") as session:
                    session.global_("torch", "rand")(1)
                held = []
                try:
                    while True:
                        held.append(os.dup(0))
                except OSError:
                    pass
                for model in ("two", "", "one", "three", ""):
                    with pool.acquire_session(affinity=model) as session:
                        assert session.global_("torch", "rand")(1).to_value().shape == (1,)
            """
        )
    )


SEEDED = """
import torch
def seeded(barrier_free_rounds, seed):
    torch.manual_seed(seed)
    return [torch.rand(3).tolist() for _ in range(barrier_free_rounds)]
"""


def test_a_seed_gives_the_same_numbers_in_interpreters_at_work_at_once(manager: InterpreterManager) -> None:
    generator = torch.Generator().manual_seed(7)
    expected = [torch.rand(3, generator=generator).tolist() for _ in range(300)]
    untouched = torch.get_rng_state()
    with every_interpreter(manager) as sessions:
        codes = [Code(session, SEEDED) for session in sessions]
        results = together([lambda code=code: code.call("seeded", 300, 7) for code in codes])  # type: ignore[misc]
    assert all(result == expected for result in results)
    assert torch.equal(torch.get_rng_state(), untouched)  # the host's own


def test_a_models_random_numbers_go_on_where_they_stood(
    manager: InterpreterManager, names: list[str]
) -> None:
    generator = torch.Generator().manual_seed(3)
    expected = [torch.randn(5, generator=generator).tolist() for _ in range(4)]
    drawn = []
    with lease_in(manager, names[0], 0) as session:
        Code(session, "import torch; torch.manual_seed(3)")
        drawn.append(read(session, "torch.randn(5).tolist()"))
    for _ in range(3):
        with lease_in(manager, names[1], 0) as other:  # in between, another model draws, and seeds
            read(other, "torch.manual_seed(99) and torch.randn(5).tolist()")
        with lease_in(manager, names[0], 0) as session:
            drawn.append(read(session, "torch.randn(5).tolist()"))
    assert drawn == expected


def test_the_default_generator_in_python_is_the_one_that_is_used(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import torch
        torch.default_generator.manual_seed(11)
        first = torch.rand(4).tolist()
        state = torch.default_generator.get_state()
        second = torch.rand(4).tolist()
        torch.default_generator.set_state(state)
        again = torch.rand(4).tolist()
        with torch.random.fork_rng():
            torch.manual_seed(0)
        after = torch.initial_seed()
        """,
    )
    generator = torch.Generator().manual_seed(11)
    assert code["first"].to_value() == torch.rand(4, generator=generator).tolist()
    assert (
        code["second"].to_value() == code["again"].to_value() == torch.rand(4, generator=generator).tolist()
    )
    assert code["after"].to_value() == 11


def test_a_thread_that_a_model_starts_has_the_models_settings(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import torch
        from concurrent.futures import ThreadPoolExecutor
        def on_thread():
            torch.set_default_dtype(torch.float64)
            torch.manual_seed(2)
            with ThreadPoolExecutor(1) as executor:
                return executor.submit(lambda: (str(torch.rand(1).dtype), torch.initial_seed())).result()
        """,
    )
    assert code.call("on_thread") == ("torch.float64", 2)


def test_the_number_of_inter_op_threads_is_the_hosts_to_set(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import torch, warnings
        def set_it(count):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.set_num_interop_threads(count)
            return [str(warning.message) for warning in caught], torch.get_num_interop_threads()
        """,
    )
    count = torch.get_num_interop_threads()
    assert code.call("set_it", count) == ([], count)
    warned, after = code.call("set_it", count + 1)
    assert after == count
    assert len(warned) == 1
    assert "all interpreters of the process share" in warned[0]
    assert code.call("set_it", count + 2) == ([], count)  # once is enough


def test_anomaly_mode_is_kept_apart_and_its_search_for_nans_refused(manager: InterpreterManager) -> None:
    source = """
    import torch, warnings
    warnings.simplefilter("ignore")
    def nested():
        seen = [torch.is_anomaly_enabled()]
        with torch.autograd.detect_anomaly(check_nan=False):
            seen.append(torch.is_anomaly_enabled())
            with torch.autograd.set_detect_anomaly(False):
                seen.append(torch.is_anomaly_enabled())
            seen.append(torch.is_anomaly_enabled())
        return seen + [torch.is_anomaly_enabled()]
    def search():
        with torch.autograd.detect_anomaly(): pass
    block = torch.autograd.detect_anomaly(check_nan=False)
    """
    with every_interpreter(manager, 2) as sessions:
        one, other = (Code(session, source) for session in sessions)
        one["block"].attr("__enter__")()
        assert other.call("nested") == [False, True, False, True, False]
        assert torch.is_anomaly_enabled()  # the switch is one, as long as any model wants it
        with pytest.raises(RemoteError, match="check_nan=False"):
            other["search"]()
        one["block"].attr("__exit__")(None, None, None)
        assert not torch.is_anomaly_enabled()
