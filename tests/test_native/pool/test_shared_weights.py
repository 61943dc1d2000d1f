"""Weights that each interpreter loaded for itself: one copy in memory, and no writes of another's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from interpool_testing import every_interpreter, pool_of, printed, run_program, together
from mappings import Mapping, mappings
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession

SOME = 2  # interpreters: what is new in the second, a third does as it does
# Ways to load a model, and how many of its storages are shared: biases are too small, and freezing
# makes numbers of two others.
HOW = {"state dict": 5, "whole": 5, "scripted": 5, "frozen": 3}
FILE = "/memfd:interpool-weights (deleted)"


def call(session: InterpreterSession, function: str, *arguments: Any) -> Any:
    return session.global_("weights_guest", function)(*arguments).to_value()


def in_each(
    manager: InterpreterManager, function: str, *arguments: Any, some: int | None = SOME
) -> list[Any]:
    """What each of some interpreters returns, or each of all, one after the other."""
    found = []
    for instance in manager.all_instances()[:some]:
        with instance.acquire_session(timeout=60) as session:
            found.append(call(session, function, *arguments))
    return found


# Interpreters of this file's own: a model that shares weights looks through all that has been imported there.
manager = pool_of(SOME + 1)


@pytest.fixture
def key(manager: InterpreterManager, tmp_path: Path) -> Iterator[str]:
    # What other tests have left in an interpreter is shared, too: before this one begins.
    in_each(manager, "begin", f"{tmp_path}/begin", some=None)
    yield str(tmp_path)
    in_each(manager, "drop_all", some=None)
    manager.forget(str(tmp_path))


@pytest.fixture
def shared(key: str) -> Callable[[], list[Mapping]]:
    """What the test has had mapped, and no other."""
    before = {mapping.file for mapping in mappings() if mapping.name == FILE}
    return lambda: [each for each in mappings() if each.name == FILE and each.file not in before]


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
def test_weights_that_each_interpreter_loads_are_mapped_from_one_file_and_answer_the_same(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]], how: str
) -> None:
    path = f"{key}/model.pt"
    # Not where it is then loaded: torch keeps something of what it has traced or frozen.
    with manager.all_instances()[-1].acquire_session(timeout=60) as session:
        expected = call(session, "save", path, how)
    found = in_each(manager, "load_and_share", key, path, how)
    storages, size, private = found[0]
    assert storages == HOW[how]
    assert size >= 2 * 256 * 256 * 4
    assert private == 0
    assert found == [found[0]] * SOME
    assert in_each(manager, "run", key) == [expected] * SOME
    assert len({mapping.file for mapping in shared()}) == 1
    assert len(shared()) == SOME
    assert sum(mapping.kib["Private_Dirty"] for mapping in shared()) == 0


KINDS = {  # how many storages are shared, and how many are not
    "wide": (5, 0),
    "tied": (2, 0),
    "recurrent": (8, 0),
    "parametrized": None,
    "quantized": None,
    "warm": None,
    "inference": (5, 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_all_kinds_answer_bitwise_as_before(
    manager: InterpreterManager, key: str, kind: str
) -> None:
    for before, after, storages, private in in_each(manager, "make_and_share", key, kind):
        assert after == before
        if KINDS[kind]:
            assert (storages, private) == KINDS[kind]
    assert len(set(in_each(manager, "run", key))) == 1


def test_a_write_in_one_interpreter_is_seen_in_no_other(manager: InterpreterManager, key: str) -> None:
    in_each(manager, "keep", key, 5)
    assert [found[0] for found in in_each(manager, "share", key)] == [1] * SOME
    (total, *_) = totals = in_each(manager, "total", key)
    assert totals == [total] * SOME
    instances = manager.all_instances()[:SOME]
    with instances[1].acquire_session(timeout=60) as session:
        call(session, "fill", key, 1000, 5e6)
    for number, instance in enumerate(instances):
        with instance.acquire_session(timeout=60) as session:
            assert (call(session, "value", key, 1000) == 5e6) is (number == 1)
            assert (call(session, "total", key) == total) is (number != 1)


def test_an_interpreter_that_loads_after_a_write_has_what_it_loaded(
    manager: InterpreterManager, key: str
) -> None:
    first, second, *_ = manager.all_instances()
    with first.acquire_session(timeout=60) as session:
        call(session, "keep", key, 5)
        call(session, "share", key)
        untouched = call(session, "total", key)
        call(session, "fill", key, 1000, 5e6)
    with second.acquire_session(timeout=60) as session:
        call(session, "keep", key, 5)
        assert call(session, "share", key)[0] == 1
        assert call(session, "total", key) == untouched


def test_unequal_weights_stay_each_interpreters_own(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    with every_interpreter(manager, SOME) as sessions:
        for seed, session in enumerate(sessions):
            call(session, "keep", key, seed)
        before = [call(session, "total", key) for session in sessions]
        for session in sessions:
            call(session, "share", key)
        assert [call(session, "total", key) for session in sessions] == before
    assert len({mapping.file for mapping in shared()}) == SOME


def test_equal_weights_of_one_model_stay_apart(manager: InterpreterManager, key: str) -> None:
    in_each(manager, "keep_all", key, 3, 0.5)
    assert [found[0] for found in in_each(manager, "share", key)] == [3] * SOME
    for instance in manager.all_instances()[:SOME]:
        with instance.acquire_session(timeout=60) as session:
            call(session, "fill", key, 1, 0.0)  # the second of them
            assert call(session, "total", key) == 2 * 50_000


def test_two_models_of_one_interpreter_stay_apart(manager: InterpreterManager, key: str) -> None:
    with manager.acquire_session(timeout=60) as session:
        for name in (key, f"{key} again"):
            call(session, "keep", name, 5)
            assert call(session, "share", key)[0] == 1
        before = call(session, "total", key)
        call(session, "fill", key, 1000, 5e6)
        assert call(session, "total", f"{key} again") == before


def test_other_keys_share_nothing(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    first, second, *_ = manager.all_instances()
    for instance, other in ((first, f"{key}/a"), (second, f"{key}/b")):
        with instance.acquire_session(timeout=60) as session:
            call(session, "keep", other, 5)
            assert call(session, "share", other)[0] == 1
    assert len({mapping.file for mapping in shared()}) == 2


@pytest.mark.long
def test_scratch_space_is_left_alone(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    in_each(manager, "keep_scratch", key)
    assert [found[:2] for found in in_each(manager, "share", key)] == [(0, 0)] * SOME
    assert shared() == []


def test_a_file_that_torch_maps_is_left_to_it(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    with every_interpreter(manager, 1) as (session,):
        expected = call(session, "save", f"{key}/model.pt", "mapped")
        assert call(session, "load_and_share", key, f"{key}/model.pt", "mapped") == (0, 0, 0)
        assert call(session, "run", key) == expected
    assert shared() == []


# ---- who else may have the address ----------------------------------------------------------------------

ALIASES = [
    "numpy", "memoryview", "dlpack", "capsule", "saved for backward", "saved by a function", "gradient",
]  # fmt: skip
KNOWN = [
    "closure", "slots", "suspended generator", "waiting call", "view of a view", "storage", "parameter",
    "dictionary", "partial", "cycle",
]  # fmt: skip


@pytest.mark.parametrize("alias", ALIASES)
def test_memory_that_other_code_may_reach_stays_where_it_is(
    manager: InterpreterManager, key: str, alias: str
) -> None:
    with manager.acquire_session(timeout=60) as session:
        assert call(session, "share_aliased", key, alias) == (0, 1)


def test_a_write_through_numpy_is_seen_in_the_tensor(manager: InterpreterManager, key: str) -> None:
    with manager.acquire_session(timeout=60) as session:
        call(session, "share_aliased", key, "numpy")
        assert call(session, "write_through_alias", key) == 1234.5


@pytest.mark.long
@pytest.mark.parametrize("alias", KNOWN)
def test_memory_of_which_all_users_are_known_is_shared(
    manager: InterpreterManager, key: str, alias: str
) -> None:
    with manager.acquire_session(timeout=60) as session:
        assert call(session, "share_aliased", key, alias) == (1, 0)


@pytest.mark.parametrize("beside_a_waiting_call", [False, True])
def test_memory_that_a_running_function_has_stays_where_it_is(
    manager: InterpreterManager, key: str, beside_a_waiting_call: bool
) -> None:
    with manager.acquire_session(timeout=60) as session:
        assert call(session, "share_with_a_local", key, beside_a_waiting_call)[:2] == (0, 1)


@pytest.mark.parametrize("of", ["tensor", "storage", "typed"])
def test_an_address_that_was_asked_for_stays_good(manager: InterpreterManager, key: str, of: str) -> None:
    with manager.acquire_session(timeout=60) as session:
        assert call(session, "share_with_a_known_address", key, of) == (1, False)


# ---- how it ends -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_memory_that_a_thread_of_the_models_frees_is_not_read(tmp_path: Path) -> None:
    said = printed(
        """
        import sys
        from interpool.native import InterpreterManager
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            share = session.global_("weights_guest", "share_while_it_is_resized")
            print(share(sys.argv[1], 20).to_value())
        """,
        str(tmp_path),
    )
    assert int(said) > 0


@pytest.mark.long
def test_memory_of_weights_goes_with_the_last_model_that_has_it(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    files = _weights_files()
    in_each(manager, "keep", key, 5)
    in_each(manager, "share", key)
    assert len(_weights_files()) == len(files) + 1
    first, *others = manager.all_instances()[:SOME]
    for left, instance in enumerate(others):
        with instance.acquire_session(timeout=60) as session:
            call(session, "drop", key)
        assert len(shared()) == SOME - left - 1
    with first.acquire_session(timeout=60) as session:
        assert call(session, "value", key, 0) != 0
        call(session, "drop", key)
    wait_for(lambda: not shared(), "its memory to be given back")
    assert _weights_files() == files


@pytest.mark.long
def test_a_forgotten_model_keeps_its_memory_and_shares_it_with_no_new_model(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    first, second, *_ = manager.all_instances()
    longer = f"{key}#2"
    for instance in (first, second):
        with instance.acquire_session(timeout=60) as session:
            call(session, "keep", longer, 5)
            assert call(session, "share", longer)[0] == 1
        manager.forget(key)
    assert len({mapping.file for mapping in shared()}) == 2
    totals = []
    for instance in (first, second):
        with instance.acquire_session(timeout=60) as session:
            totals.append(call(session, "total", longer))
    assert len(set(totals)) == 1


def test_a_model_that_is_dropped_from_one_interpreter_finds_its_weights_when_it_comes_back(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    in_each(manager, "keep", key, 5)
    assert [storages for storages, *_ in in_each(manager, "share", key)] == [1] * SOME
    second = manager.all_instances()[1]
    with second.acquire_session(timeout=60) as session:
        call(session, "drop", key)
        manager.forget(key, second.interpreter_id)
        call(session, "keep", key, 5)
        assert call(session, "share", key)[0] == 1
    assert len({mapping.file for mapping in shared()}) == 1


@pytest.mark.long
def test_a_tensor_that_leaves_its_interpreter_keeps_the_memory(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    with manager.acquire_session(timeout=60) as session:
        call(session, "keep", key, 5)
        call(session, "share", key)
        weight = session.global_("weights_guest", "kept").attr("__getitem__")(key).to_value()
        call(session, "drop", key)
    assert len(shared()) == 1
    assert weight.std() > 0.9
    del weight
    wait_for(lambda: not shared(), "its memory to be given back")


def test_interpreters_that_load_at_once_share_one_copy(
    manager: InterpreterManager, key: str, shared: Callable[[], list[Mapping]]
) -> None:
    path = f"{key}/model.pt"
    with manager.acquire_session(timeout=60) as session:
        expected = call(session, "save", path, "state dict")
    for number in range(2):
        name = f"{key}#{number}"
        with every_interpreter(manager) as sessions:
            found = together(
                [partial(call, each, "load_and_share", name, path, "state dict") for each in sessions]
            )
            assert found == [found[0]] * len(sessions)
            assert found[0][::2] == (5, 0)
            assert [call(session, "run", name) for session in sessions] == [expected] * len(sessions)
        assert len({mapping.file for mapping in shared()}) == number + 1
        assert len(shared()) == (number + 1) * len(sessions)


@pytest.mark.long
def test_without_memory_nothing_is_moved_and_the_log_says_so(tmp_path: Path) -> None:
    ended = run_program(
        """
        import sys
        from interpool.native import InterpreterManager

        with InterpreterManager(1) as pool, pool.acquire_session() as session:
            print(session.global_("weights_guest", "share_without_memory")(sys.argv[1]).to_value()[0])
            session.global_("weights_guest", "keep")(sys.argv[1], 5)
            assert session.global_("weights_guest", "share")(sys.argv[1]).to_value()[0] == 1
        """,
        str(tmp_path),
    )
    assert ended.returncode == 0, ended.stderr
    assert f"the weights of {tmp_path} are not shared" in ended.stdout
    assert "File too large" in ended.stdout
    assert "not shared" in ended.stderr  # the log


def _weights_files() -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            name = os.readlink(descriptor)
        except FileNotFoundError:  # the one that this loop reads from
            continue
        if name == FILE:
            found.append(str(descriptor))
    return sorted(found)


# The last one: the compiler takes seconds to be imported, and all who share look through it from then on.
@pytest.mark.long
def test_a_compiled_model_answers_bitwise_as_before(manager: InterpreterManager, key: str) -> None:
    (before, after, storages, private), *_ = in_each(manager, "make_and_share", key, "compiled", some=1)
    assert after == before
    assert (storages, private) == (5, 0)
