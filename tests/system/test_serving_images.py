"""Image models of torchvision's and transformers' answer from the pool as they do in an ordinary Python."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local_server import TorchServe
from system.conftest import Mar, Pack
from system.image_models import LABELS, png

COLOURS = ("red", "teal", "orange", "white")
HERE = Path(__file__).parent
PLAIN = """
import json, sys
sys.path.insert(0, sys.argv[1])
import image_models
model = getattr(image_models, sys.argv[2])()
rows = [{"body": image_models.png(colour)} for colour in sys.argv[3:]]
print(json.dumps([model.handle([row], None)[0] for row in rows]))
assert not any(name.startswith("interpool") for name in sys.modules)
"""


def plain_answers(name: str) -> list[dict[str, float]]:
    """Of an ordinary Python process; where it cannot import the model's library the test is skipped."""
    command = [sys.executable, "-P", "-W", "ignore", "-c", PLAIN, str(HERE), name, *COLOURS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and name == "resnet":
        pytest.skip(f"torchvision cannot be used here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, float]] = json.loads(done.stdout)
    return answers


@pytest.mark.long
@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_an_image_model_of_a_library_answers_from_the_pool_as_in_plain_python(
    server: TorchServe, mar: Mar, packed: Pack, name: str
) -> None:
    expected = plain_answers(name)
    assert len({tuple(answer.values()) for answer in expected}) == len(COLOURS), "they tell images apart"
    archive = mar(server, name, packed(name, "image_models"))
    assert server.register(archive, batch_size=2, max_batch_delay=50, initial_workers=2).status == 200
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda colour: server.post(name, png(colour), "image/png"), COLOURS * 4))
    assert [answer.status for answer in answers] == [200] * len(answers)
    for answer, right in zip(answers, expected * 4, strict=True):
        assert list(answer.json) == list(LABELS)
        assert answer.json == pytest.approx(right, abs=1e-5)
    assert server.unregister(name).status == 200
