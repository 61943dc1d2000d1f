"""Memory that tensors of several interpreters share: kept while needed, and freed once."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from interpool_testing import SUPPORT, Code, every_interpreter, outstanding, printed, together
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession

COUNTING = (SUPPORT / "counting_guest.py").read_text()


class Watched:
    """Tensors over arrays of the host's, and how often one was freed."""

    def __init__(self) -> None:
        self.made = 0
        self.freed = 0
        self._lock = threading.Lock()

    def tensor(self, size: int) -> torch.Tensor:
        array = np.full(size, 3.0, dtype=np.float32)
        with self._lock:
            self.made += 1
        weakref.finalize(array, self._gone).atexit = False
        return torch.from_numpy(array)

    def _gone(self) -> None:
        with self._lock:
            self.freed += 1

    def all_freed(self) -> bool:
        return self.freed == self.made


def test_memory_of_an_interpreters_lives_as_long_as_the_host_uses_it(session: InterpreterSession) -> None:
    code = Code(session, COUNTING)
    tensor = code.call("make", 10)
    view = tensor[5:]
    assert code.call("counts") == (1, 0)
    del tensor
    assert code.call("counts") == (1, 0)
    assert view.tolist() == [7.0] * 5
    del view
    wait_for(lambda: code.call("counts") == (1, 1), "the memory to be freed")


def test_each_array_is_freed_once_in_any_order_of_its_users_ends(manager: InterpreterManager) -> None:
    watched = Watched()
    with every_interpreter(manager, 3) as sessions:
        codes = [Code(session, COUNTING) for session in sessions]
        for order in itertools.islice(itertools.permutations(range(5)), 0, None, 7):
            here = {"tensor": watched.tensor(4)}
            here["view"] = here["tensor"][1:]
            for code in codes:
                code["keep"]("x", here["tensor"])
            ends: list[Any] = [
                lambda here=here: here.pop("tensor"),
                lambda here=here: here.pop("view"),
                *(lambda code=code: code["drop"]("x") for code in codes),
            ]
            for step in order:
                assert watched.freed == watched.made - 1, f"freed too early, in the order {order}"
                ends[step]()
            wait_for(watched.all_freed, f"the memory to be freed, in the order {order}")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # once in a process
def test_the_parts_of_a_sparse_or_quantized_tensor_are_freed_once(manager: InterpreterManager) -> None:
    watched = Watched()
    with every_interpreter(manager, 2) as sessions:
        codes = [Code(session, COUNTING) for session in sessions]
        for first, second, last in itertools.permutations(range(3)):
            indices = torch.tensor([[0, 2]])
            here = [torch.sparse_coo_tensor(indices, watched.tensor(2), (4,), check_invariants=False)]
            for code in codes:
                code["keep"]("x", here[0])
            ends: list[Any] = [here.clear, lambda: codes[0]["drop"]("x"), lambda: codes[1]["drop"]("x")]
            ends[first]()
            ends[second]()
            assert watched.freed == watched.made - 1
            ends[last]()
            wait_for(watched.all_freed, "the memory to be freed")
        quantized = torch.quantize_per_channel(
            torch.ones(2, 3), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8
        )
        for code in codes:
            code["keep"]("x", quantized)
        del quantized
        codes[0]["drop"]("x")
        gc.collect()
        assert codes[1].call("total_dequantized", "x") == 6  # its scales live as long as it does
        codes[1]["drop"]("x")


@pytest.mark.long
def test_a_tensor_outlives_its_pool() -> None:
    with InterpreterManager(1) as manager, manager.acquire_session(timeout=60) as session:
        code = Code(session, COUNTING)
        tensor, view = code.call("make", 1000), code.call("make", 10)[5:]
    assert not session.is_open
    del session, code, manager
    gc.collect()
    assert tensor.sum().item() == 7000
    tensor.add_(1)
    assert view.tolist() == [7.0] * 5
    del view
    gc.collect()
    assert tensor.sum().item() == 8000


def test_many_threads_move_one_tensor_between_interpreters_at_once(manager: InterpreterManager) -> None:
    watched = Watched()
    held = {"whole": watched.tensor(64)}
    held["half"] = held["whole"][32:]
    address = held["whole"].data_ptr()

    def work(number: int) -> None:
        for _ in range(25):
            with manager.acquire_session(timeout=60) as session:
                moved = session.from_value(held).to_value()
            with manager.acquire_session(timeout=60) as session:
                arrived = session.from_value([*moved.values(), moved["whole"][number]]).to_value()
            assert [part.data_ptr() for part in arrived] == [address, address + 128, address + 4 * number]
            assert {part.untyped_storage().data_ptr() for part in arrived} == {address}
            assert [part.sum().item() for part in arrived] == [192, 96, 3]

    together([lambda i=i: work(i) for i in range(16)])  # type: ignore[misc]
    assert watched.freed == 0
    held.clear()
    wait_for(watched.all_freed, "the memory to be freed")


def test_memory_relayed_by_the_host_goes_back_to_where_it_came_from(manager: InterpreterManager) -> None:
    with every_interpreter(manager, 2) as sessions:
        one, other = (Code(session, COUNTING) for session in sessions)
        other["keep"]("relayed", one.call("make", 4))
        assert one.call("counts") == (1, 0)
        other["drop"]("relayed")
        wait_for(lambda: one.call("counts") == (1, 1), "the memory to be freed")


def test_many_threads_release_one_anothers_memory_without_deadlock(manager: InterpreterManager) -> None:
    watched = Watched()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        mine: list[torch.Tensor] = []
        for _ in range(30):
            with manager.acquire_session(timeout=60) as session:
                make, keep, drop = (session.global_("counting_guest", n) for n in ("make", "keep", "drop"))
                mine.append(make(256).to_value())
                keep((seed, 0), watched.tensor(256))
                keep((seed, 1), chance.choice(mine))
                if chance.random() < 0.5:
                    drop((seed, 0))
                if len(mine) > 5:
                    mine.pop(chance.randrange(5))
        assert all(tensor.sum().item() == 7 * 256 for tensor in mine)

    before = outstanding(manager)
    together([lambda i=i: work(i) for i in range(6)])  # type: ignore[misc]
    with every_interpreter(manager) as sessions:
        for session in sessions:
            session.global_("counting_guest", "drop_all")()
    wait_for(watched.all_freed, "the host's arrays to be freed")
    wait_for(lambda: outstanding(manager) <= before, "the interpreters' arrays to be freed")


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_crossings() -> None:
    printed("""
        import torch
        from interpool import InterpreterManager
        from interpool_testing import rss_mib
        from waiting import wait_for

        SIZE = 2**20  # 4 MiB

        def cross(times):
            for _ in range(times):
                assert total(torch.ones(SIZE)).to_value().item() == SIZE
                assert ones(SIZE).to_value()[-1].item() == 1

        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            ones, total = session.global_("torch", "ones"), session.global_("torch", "sum")
            cross(20)
            before = rss_mib()
            cross(60)  # a leak would be 240 MiB in each direction
            wait_for(lambda: rss_mib() - before < 40, lambda: f"{rss_mib() - before:.0f} MiB to be freed")
        """)
