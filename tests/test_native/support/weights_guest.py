"""Models that private interpreters load for themselves, and what is done with them there."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrizations

from interpool.native.inside.weights import share_weights, sharing_loads

WIDTH = 256
kept: dict[str, Any] = {}
_others = 0


class Wide(nn.Module):
    """Two layers, and tensors that are no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        whole = torch.linspace(0.0, 1.0, 4 * WIDTH)
        self.register_buffer("shift", whole[:WIDTH], persistent=False)
        self.plain = torch.randn(4 * WIDTH)
        self.table = [torch.randn(8 * WIDTH)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(torch.tanh(self.first(x)))
        return x + self.shift + self.plain.sum() + self.table[0].sum()


class Tied(nn.Module):
    """One weight in two places, and views of one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second = nn.Linear(WIDTH, WIDTH, bias=False)
        self.second.weight = self.first.weight
        self.third = nn.Parameter(self.first.weight.detach())
        self.row = self.first.weight.detach()[3]
        whole = torch.randn(WIDTH, WIDTH)
        self.register_buffer("turned", whole.t())
        self.register_buffer("spread", whole[:1].expand(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) @ self.third + self.row + x @ self.turned @ self.spread


class Recurrent(nn.Module):
    """Weights in lists, and behind weak references."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x[None])[0][0]


def _parametrized() -> nn.Module:
    return nn.Sequential(
        parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
        parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    )


def _quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()), {nn.Linear}
    )


def _compiled() -> nn.Module:
    model = Wide().eval()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        compiled(torch.ones(2, WIDTH))
    return compiled


def _warm() -> nn.Module:
    model = Wide()
    model(torch.ones(2, WIDTH)).sum().backward()
    return model


def _inference() -> nn.Module:
    with torch.inference_mode():
        model = Wide()
        model(torch.ones(2, WIDTH))
    return model


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "wide": Wide,
    "tied": Tied,
    "recurrent": Recurrent,
    "parametrized": _parametrized,
    "quantized": _quantized,
    "compiled": _compiled,
    "warm": _warm,
    "inference": _inference,
}


def make(kind: str) -> nn.Module:
    """A model of that kind, the same in each interpreter."""
    torch.manual_seed(7)
    return MAKERS[kind]().eval()


def answer(model: Any) -> bytes:
    torch.manual_seed(11)
    x = torch.randn(4, WIDTH)
    with torch.inference_mode():
        return bytes(model(x).numpy().tobytes())


def load(key: str, path: str, how: str) -> None:
    """Load the model in the file, as handlers do; ``run`` has it."""
    with sharing_loads(key):
        if how == "state dict":
            model: Any = Wide()
            kept[key] = model  # in use before its weights come, as handlers' are
            loaded = torch.load(path)
            model.load_state_dict(loaded["state"])
            model.shift.copy_(loaded["shift"])
            model.plain.copy_(loaded["plain"])
            model.table[0].copy_(loaded["table"])
            model.eval()
        elif how == "whole":
            kept[key] = torch.load(path, weights_only=False)
        elif how == "mapped":
            kept[key] = torch.load(path, weights_only=False, mmap=True)
        else:
            kept[key] = torch.jit.load(path, map_location="cpu")


def save(path: str, how: str) -> bytes:
    """Write a file for ``load``; what its model answers."""
    model = make("wide")
    if how == "state dict":
        extra = {"shift": model.shift, "plain": model.plain, "table": model.table[0]}
        torch.save({"state": model.state_dict(), **extra}, path)
        return answer(model)
    if how in ("whole", "mapped"):
        torch.save(model, path)
        return answer(model)
    scripted = torch.jit.script(model)
    if how == "frozen":
        scripted = torch.jit.freeze(scripted)
    torch.jit.save(scripted, path)
    return answer(torch.jit.load(path))


def share(key: str) -> tuple[int, int, int]:
    """How many storages are shared, their bytes, and how many are not."""
    shared = share_weights(key)
    assert not shared.failure
    return shared.storages, shared.bytes, shared.private_storages - _others


def begin(key: str) -> None:
    """Share what other tests have left in this interpreter, and count what cannot be."""
    global _others
    _others = share_weights(key).private_storages


def load_and_share(key: str, path: str, how: str) -> tuple[int, int, int]:
    load(key, path, how)
    return share(key)


def make_and_share(key: str, kind: str) -> tuple[bytes, bytes, int, int]:
    """What a model answers before and after, and how many of its storages are shared and not."""
    with sharing_loads(key):
        kept[key] = make(kind)
    before = answer(kept[key])
    storages, _, private = share(key)
    return before, answer(kept[key]), storages, private


def run(key: str) -> bytes:
    return answer(kept[key])


def keep(key: str, seed: int, size: int = 100_000) -> None:
    """A tensor of random numbers by itself."""
    torch.manual_seed(seed)
    kept[key] = torch.randn(size)


def keep_all(key: str, tensors: int, value: float) -> None:
    kept[key] = [torch.full((100_000,), value) for _ in range(tensors)]


def keep_scratch(key: str) -> None:
    kept[key] = torch.zeros(100_000)
    kept[key][:10] = 1


def fill(key: str, index: int, value: float) -> None:
    kept[key][index].fill_(value)


def total(key: str) -> float:
    return float(torch.stack([tensor.double().sum() for tensor in _list(kept[key])]).sum())


def value(key: str, index: int) -> float:
    return float(kept[key][index])


def _list(value: Any) -> list[torch.Tensor]:
    return value if isinstance(value, list) else [value]


def drop(key: str) -> None:
    kept.pop(key, None)
    gc.collect()


def drop_all() -> None:
    if kept:
        kept.clear()
        gc.collect()


# ---- who else may have a tensor's address ---------------------------------------------------------------


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def _closure(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: tensor


class _Slots:
    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _generator(tensor: torch.Tensor) -> Any:
    yield tensor
    yield tensor * 2


def _started(tensor: torch.Tensor) -> Any:
    generator = _generator(tensor)
    next(generator)
    return generator


def _call(tensor: torch.Tensor) -> Any:
    print(tensor, (yield))


def _waiting_call(tensor: torch.Tensor) -> Any:
    """A function that waits, with the tensor in a variable and among a call's arguments."""
    generator = _call(tensor)
    next(generator)
    return generator


def _memory(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.numpy())


def _from_dlpack(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.from_dlpack(tensor)


def _saved(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.requires_grad_() ** 2).sum()


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    """A parameter whose gradient the tensor is: C++ has it."""
    parameter = torch.nn.Parameter(torch.zeros(tensor.shape))
    parameter.grad = tensor
    return parameter


ALIASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy": lambda tensor: tensor.numpy(),
    "memoryview": _memory,
    "dlpack": _from_dlpack,
    "capsule": torch.utils.dlpack.to_dlpack,
    "saved for backward": _saved,
    "saved by a function": lambda tensor: Counting.apply(tensor.requires_grad_()).sum(),
    "gradient": _gradient,
}


def _cycle(tensor: torch.Tensor) -> None:
    """Garbage with the tensor in it."""
    found: list[Any] = [tensor]
    found.append(found)


KNOWN: dict[str, Callable[[torch.Tensor], Any]] = {
    "closure": _closure,
    "slots": _Slots,
    "suspended generator": _started,
    "waiting call": _waiting_call,
    "view of a view": lambda tensor: tensor.view(100, 1000).t()[3],
    "storage": lambda tensor: tensor.untyped_storage(),
    "parameter": torch.nn.Parameter,
    "dictionary": lambda tensor: {"a": {"b": [(tensor, tensor), {"c": tensor}]}},
    "partial": lambda tensor: partial(print, tensor),
    "cycle": _cycle,
}


def share_aliased(key: str, alias: str) -> tuple[int, int]:
    """How many storages are shared, and how many are not, with an alias of one there."""
    keep(key, 5)
    kept[key + " alias"] = {**ALIASES, **KNOWN}[alias](kept[key])
    storages, _, private = share(key)
    return storages, private


def write_through_alias(key: str) -> float:
    """What the tensor has where its numpy alias was written to."""
    np.asarray(kept[key + " alias"])[42] = 1234.5
    return value(key, 42)


def share_with_a_local(key: str, beside_a_waiting_call: bool = False) -> tuple[int, int]:
    """The same with a variable of a running function."""
    keep(key, 5)
    local = kept[key]
    waiting = _waiting_call(local) if beside_a_waiting_call else None
    storages, _, private = share(key)
    del local, waiting
    return storages, private


def share_with_a_known_address(key: str, of: str) -> tuple[int, bool]:
    """The same with an address that was asked for while the model was loaded."""
    with sharing_loads(key):
        keep(key, 5)
        keep(key + " other", 6)
        owner = {
            "tensor": lambda: kept[key],
            "storage": kept[key].untyped_storage,
            "typed": kept[key].storage,
        }[of]()
        kept[key + " address"] = owner.data_ptr()
        del owner
    shared = share_weights(key)
    assert kept[key].data_ptr() == kept[key + " address"]
    return shared.storages, "data_ptr" in vars(torch.Tensor)


def share_while_it_is_resized(key: str, times: int) -> int:
    """How many storages were shared, with a thread that frees a tensor's memory again and again."""
    size = 2**24
    kept[key] = torch.full((size,), 1.5)
    ending = threading.Event()

    def resize() -> None:
        while not ending.wait(0.002):  # where nothing of it refers to the tensor
            kept[key].untyped_storage().resize_(0)
            kept[key].untyped_storage().resize_(4 * size)
            kept[key].fill_(1.5)

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        shared = sum(share_weights(key).storages for _ in range(times))
    finally:
        ending.set()
        thread.join()
    assert float(kept[key].sum()) == 1.5 * size
    return shared


def share_without_memory(key: str) -> tuple[str, float]:
    """What is said of the failure, and that the weights are as they were."""
    import resource

    keep(key, 5)
    before = total(key)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        shared = share_weights(key)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert shared[:4] == (0, 0, 0, 0)
    assert total(key) == before
    return shared.failure, before
