"""What the tests of devices run, in ordinary Python and in interpreters: the same source for both."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

Work = Callable[[str], torch.Tensor]


def _given(device: str, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The same numbers on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype)


def _symmetric(device: str) -> torch.Tensor:
    a = _given(device, 4, 48, 48)
    return a @ a.mT + 48 * torch.eye(48, device=device)


def _gradient(device: str) -> torch.Tensor:
    x = _given(device, 32, 64).requires_grad_()
    functional.gelu(functional.linear(x, _given(device, 16, 64, seed=1))).square().sum().backward()
    assert x.grad is not None
    return x.grad


def _recurrent(device: str) -> torch.Tensor:
    torch.manual_seed(0)
    with torch.device("cpu"):
        lstm = torch.nn.LSTM(16, 32, num_layers=2, batch_first=True)
    return lstm.to(device)(_given(device, 4, 12, 16))[0].detach()


# What goes through different libraries of CUDA's.
WORKS: dict[str, Work] = {
    "matrix product": lambda d: _given(d, 256, 192) @ _given(d, 192, 128, seed=1),
    "batched product": lambda d: torch.bmm(_given(d, 8, 64, 32), _given(d, 8, 32, 64, seed=1)),
    "convolution": lambda d: functional.conv2d(
        _given(d, 4, 8, 32, 32), _given(d, 16, 8, 3, 3, seed=1), padding=1
    ),
    "recurrent": _recurrent,
    "attention": lambda d: functional.scaled_dot_product_attention(
        _given(d, 2, 4, 32, 64), _given(d, 2, 4, 32, 64, seed=1), _given(d, 2, 4, 32, 64, seed=2)
    ),
    "solve": lambda d: torch.linalg.solve(_symmetric(d), _given(d, 4, 48, 8, seed=1)),
    "cholesky": lambda d: torch.linalg.cholesky(_symmetric(d)),
    "eigenvalues": lambda d: torch.linalg.eigvalsh(_symmetric(d)),
    "singular values": lambda d: torch.linalg.svdvals(_given(d, 4, 40, 24)),
    "sort": lambda d: _given(d, 4, 5000).sort(dim=1, stable=True).values,
    "sparse product": lambda d: torch.sparse.mm(
        _given(d, 64, 64).relu().to_sparse(), _given(d, 64, 8, seed=1)
    ),
    "transform": lambda d: torch.fft.rfft(_given(d, 8, 1024)).abs(),
    "embedding": lambda d: functional.embedding(torch.arange(99, device=d).remainder(50), _given(d, 50, 32)),
    "norm": lambda d: functional.layer_norm(_given(d, 16, 128), (128,)),
    "gradient": _gradient,
    "reduction": lambda d: _given(d, 1000, 100).logsumexp(dim=0).cumsum(0),
}


def numbers(work: str, device: str, times: int = 1) -> list[Any]:
    """What the work comes to, computed so often; all times the same, or this raises AssertionError."""
    found = [WORKS[work](device).cpu() for _ in range(times)]
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=1e-4, atol=1e-4)
    return found[0].tolist()


def drawn(seed: int, device: str, times: int) -> list[float]:
    """Random numbers of a generator of one's own."""
    generator = torch.Generator(device).manual_seed(seed)
    return [float(torch.rand(64, generator=generator, device=device).sum()) for _ in range(times)]


def cast(device: str, times: int) -> list[list[str]]:
    """The types of products inside autocast, and outside."""
    a = _given(device, 8, 8)
    inside, outside = set(), set()
    for _ in range(times):
        with torch.autocast(device, torch.bfloat16):
            inside.add(str((a @ a).dtype))
        outside.add(str((a @ a).dtype))
    return [sorted(inside), sorted(outside)]


class Net(torch.nn.Module):
    """Weights of 64 MiB and a small head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4096, 4096, bias=False)
        self.head = torch.nn.Linear(4096, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))


def net(device: str) -> Net:
    torch.manual_seed(0)
    return Net().to(device).eval().requires_grad_(False)


def places(model: Net) -> list[int]:
    """Where its weights are."""
    return [each.data_ptr() for each in model.parameters()]


def answer(model: Net, device: str, times: int = 1) -> list[float]:
    with torch.inference_mode():
        for _ in range(times):
            y = model(torch.linspace(-1, 1, 4096, device=device).unsqueeze(0))
    return [float(each) for each in y[0]]


def made(device: str, count: int) -> torch.Tensor:
    return torch.arange(float(count), device=device)


def add(tensor: torch.Tensor, number: float) -> float:
    """Writes to it; gives its sum, for which the device is waited for."""
    tensor += number
    return float(tensor.sum())


def on_a_stream(device: str, times: int) -> bool:
    """Products on a stream of one's own, which the usual one waits for: are they right?"""
    stream, usual = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    a = _given(device, 512, 512) / 23
    expected = a @ a
    for _ in range(times):
        stream.wait_stream(usual)
        with torch.cuda.stream(stream):
            assert torch.cuda.current_stream(device) == stream
            product = a @ a
            done = torch.cuda.Event()
            done.record(stream)
        usual.wait_event(done)
        torch.testing.assert_close(product, expected)
        product.record_stream(usual)
    return torch.cuda.current_stream(device) == usual


def pinned(device: str, times: int) -> bool:
    """Copies that are not waited for, from memory that is pinned and back."""
    source = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    for number in range(times):
        there = source.to(device, non_blocking=True) + number
        back = torch.empty_like(source, pin_memory=True).copy_(there, non_blocking=True)
        torch.cuda.current_stream(device).synchronize()
        if not torch.equal(back, source + number):
            return False
    return source.is_pinned()


def graph(device: str, times: int) -> list[float]:
    """A graph of kernels, captured and replayed with other inputs; each sum."""
    weight, x = _given(device, 256, 256) / 16, torch.zeros(8, 256, device=device)
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            torch.relu(x @ weight) @ weight
    torch.cuda.current_stream(device).wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured, capture_error_mode="thread_local"):
        y = torch.relu(x @ weight) @ weight
    sums = []
    for number in range(times):
        x.fill_(number)
        captured.replay()
        expected = torch.relu(torch.full_like(x, number) @ weight) @ weight
        torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-3)
        sums.append(float(y.double().sum()))
    return sums


def ask_for_too_much(device: str) -> tuple[str, int]:
    """What is raised by asking for memory without end, and how much of it was had meanwhile, bytes."""
    held: list[torch.Tensor] = []
    had = 0
    try:
        while True:
            held.append(torch.empty(1 << 30, dtype=torch.uint8, device=device))
            had += 1 << 30
    except torch.OutOfMemoryError as error:
        said = f"{type(error).__module__}.{type(error).__name__}"
    held.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return said, had


def load(path: str, device: str) -> list[float]:
    """A file of torch.save's, put on the device."""
    state = torch.load(path, map_location=device)
    assert all(each.device.type == torch.device(device).type for each in state.values())
    model = net(device)
    model.load_state_dict(state)
    return answer(model, device)


def nested(depth: int) -> float:
    """The gradient of a sum, found by backward passes inside backward passes, so deep."""

    class Inside(torch.autograd.Function):
        @staticmethod
        def forward(_context: Any, x: torch.Tensor, left: int) -> torch.Tensor:
            Inside.left = left  # type: ignore[attr-defined]
            return x.clone()

        @staticmethod
        def backward(_context: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
            left = Inside.left = Inside.left - 1  # type: ignore[attr-defined]
            if left > 0:
                with torch.enable_grad():
                    x = torch.ones(3, requires_grad=True)
                    Inside.apply(x, left).sum().backward()
            return grad, None

    x = torch.ones(3, requires_grad=True)
    Inside.apply(x, depth).sum().backward()
    assert x.grad is not None
    return float(x.grad.sum())


def beyond_the_table(device: str) -> str:
    """A row of a table that it has not: CUDA asserts, and this process's device is lost. What is raised."""
    try:
        functional.embedding(torch.tensor([7], device=device), torch.ones(3, 2, device=device)).cpu()
    except RuntimeError as error:
        return f"{type(error).__name__} {getattr(error, 'error_code', None)}: {error}".partition("\n")[0]
    return "nothing"


def after_that(device: str) -> dict[str, str]:
    """What each kind of call raises."""
    a = torch.ones(2, 2)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: a.to(device),
        "empty": lambda: torch.empty(1 << 24, device=device),
        "synchronize": torch.cuda.synchronize,
        "query": lambda: torch.cuda.current_stream().query(),
        "mem_get_info": torch.cuda.mem_get_info,
        "stream": lambda: torch.cuda.Stream().synchronize(),
        "generator": lambda: torch.rand(3, device=device).cpu(),
        "pin": a.pin_memory,
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "nothing"
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is asked for
            code = getattr(error, "error_code", None)
            found[name] = f"{type(error).__name__} {code}: {error}".partition("\n")[0]
    return found
