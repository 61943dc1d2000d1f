"""Clients that ask at the same time, in batches that TorchServe makes: each gets its own answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import own_answer_models as models
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from local_server import TorchServe
from many_examples import EXAMPLES
from own_answers import KINDS, Answered, Asked, alone, batches, read, same
from system.conftest import Mar

from interpool.archiver_ext.packing.pack import pack

pytestmark = pytest.mark.long

ROOT = Path(str(models.__file__)).parent
ROUNDS = max(EXAMPLES // 20, 1)
CLIENTS = 16


def ask(server: TorchServe, model: str, asked: Asked) -> Answered:
    if asked.fields.keys() == {"body"}:
        content_type, body = asked.fields["body"]
        answer = server.post(model, body, content_type)
    else:
        form = {name: (content, content_type) for name, (content_type, content) in asked.fields.items()}
        answer = server.post_form(model, form)
    return read(answer.status, answer.headers.get("Content-Type", ""), answer.body)


@pytest.mark.parametrize(
    "name", ["attends", *(pytest.param(name, marks=pytest.mark.long) for name in ("detector", "shown"))]
)
def test_clients_that_ask_at_once_get_their_own_answers(
    server: TorchServe, mar: Mar, tmp_path: Path, name: str
) -> None:
    (kind,) = [kind for kind in KINDS if kind.name == name]
    package, spec = tmp_path / f"{name}.ptpkg", f"{models.__name__}:"
    pack(spec + name, package, root=ROOT, inputs=spec + kind.inputs)
    archive = mar(server, name, package)
    answer = server.register(archive, initial_workers=2, batch_size=8, max_batch_delay=50)
    assert answer.status == 200, answer.text

    # A failure is not made smaller, which would take minutes.
    @settings(
        max_examples=ROUNDS, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(st.lists(batches(kind), min_size=4, max_size=8))
    def answers_are_own(several: list[list[Asked]]) -> None:
        requests = [asked for batch in several for asked in batch]
        with ThreadPoolExecutor(CLIENTS) as clients:
            found = list(clients.map(lambda asked: ask(server, name, asked), requests))
        for asked, answered in zip(requests, found, strict=True):
            expected = alone(kind, kind.way, asked)
            assert same(expected, answered, kind.rtol), f"{asked.call}: {expected}, not {answered}"

    answers_are_own()
    assert server.unregister(name).status == 200
