"""Models are added, replaced and removed while they are asked, in a real pool of its own process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, cast

import pytest
from fake_channels import until
from stock_archiver import wrap

from interpool.handler.errors import ServeError, SettingsError
from interpool.handler.run.fetching import shown
from interpool.handler.run.wanted import Reconciler, Wanted

HANDLER = """
class Handler:
    def initialize(self, context):
        pass

    def handle(self, data, context):
        return [[value * {factor} + 1 for value in row["body"]] for row in data]
"""
PROGRAM = """
import asyncio, functools, http.server, json, os, sys, threading
from interpool.handler.run.options import Options
from interpool.handler.run.asking import ask
from interpool.handler.run.serving import Serving, application
from interpool.handler.run.wanted import Reconciler

server = http.server.ThreadingHTTPServer(
    ("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=".")
)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/"
said = {}


async def main():
    serving = Serving({}, Options())
    app = application(serving)
    async with serving.open():
        reconciler = Reconciler(serving)
        await reconciler.apply({"price": "double.mar"})
        answers, over = [], asyncio.Event()

        async def load():
            while not over.is_set():
                try:
                    answers.append(json.loads(await ask(app, "price", [1, 2])))
                except Exception as error:
                    answers.append(repr(error))

        asked = asyncio.create_task(load())
        await reconciler.apply(
            {
                "price": {"url": url + "triple.mar", "workers": 2},
                "more": "double.mar",
                "wrong": "wrong.mar",
                "absent": url + "absent.mar",
                "odd": {"uri": "x"},
            }
        )
        said["more"] = json.loads(await ask(app, "more", [1]))
        said["refused"] = reconciler.refused
        said["not ready"] = serving.why_not_ready()
        await reconciler.apply({"price": "wrong.mar"})
        said["kept"] = reconciler.refused
        said["served"] = sorted(reconciler.served)
        over.set()
        await asked
        said["answers"] = [json.loads(each) for each in sorted({json.dumps(each) for each in answers})]
        said["last"] = answers[-1]
        await reconciler.apply({})
        said["none"] = sorted(reconciler.served)
        try:
            await reconciler.apply({"price": "wrong.mar"})
        except Exception as error:
            said["raised"] = [type(error).__name__, str(error)]
        reconciler.close()


asyncio.run(main())
print(json.dumps(said), flush=True)
os._exit(0)
"""


def test_models_change_under_load_and_a_wrong_one_leaves_the_others(tmp_path: Path) -> None:
    for name, factor in (("double", 2), ("triple", 3)):
        handler = tmp_path / f"{name}.py"
        handler.write_text(HANDLER.format(factor=factor))
        wrap(name, handler, tmp_path)
    (tmp_path / "wrong.mar").write_text("this is no archive")
    environment = {
        **os.environ,
        "INTERPOOL_INTERPRETERS": "1",
        "INTERPOOL_ORDINARY_ARCHIVES": "pool",
        "INTERPOOL_RUNTIME_DIR": str(tmp_path / "run"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["more"] == [3]
    assert set(said["refused"]) == {"wrong", "absent", "odd"}
    assert "is not an archive of TorchServe's" in said["refused"]["wrong"]
    assert "cannot be fetched" in said["refused"]["absent"]
    assert "'uri'" in said["refused"]["odd"]
    assert said["not ready"] == []
    assert said["served"] == ["price"]
    assert "the one before goes on" in said["kept"]["price"]
    assert said["answers"] == [[3, 5], [4, 7]]
    assert said["last"] == [4, 7]
    assert said["none"] == []
    assert said["raised"][0] == "ServeError"
    assert list((tmp_path / "run").iterdir()) == []


class _Serving:
    """Serves nothing; it refuses a model as often as the test wants, and then takes as long as it wants."""

    def __init__(self, refusals: dict[str, list[Exception]]) -> None:
        self._refusals = refusals
        self.steps: list[str] = []
        self.may_go_on = asyncio.Event()

    async def add(self, name: str, _path: Path, _options: object) -> None:
        self.steps.append(f"adds {name}")
        if refusals := self._refusals.get(name):
            raise refusals.pop()
        if name in self._refusals:
            await self.may_go_on.wait()
        self.steps.append(f"has {name}")

    async def remove(self, name: str) -> None:
        self.steps.append(f"removes {name}")


def test_a_fault_of_any_kind_in_one_model_leaves_the_others_alone() -> None:
    async def work() -> None:
        serving = _Serving({"odd": [zlib.error("invalid stored block lengths")]})
        reconciler = Reconciler(cast(Any, serving))
        await reconciler.apply({"fine": "fine.mar", "odd": "odd.mar"})
        assert reconciler.served.keys() == {"fine"}
        assert reconciler.refused.keys() == {"odd"}
        assert "invalid stored block lengths" in reconciler.refused["odd"]
        reconciler.close()

    asyncio.run(work())


def test_other_models_come_after_a_retry_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interpool.handler.run.wanted.BACK_OFF_S", (0.0,))

    async def work() -> None:
        serving = _Serving({"slow": [ServeError("out of reach")]})
        reconciler = Reconciler(cast(Any, serving))
        await reconciler.apply({"fine": "fine.mar", "slow": "slow.mar"})
        await until(lambda: serving.steps.count("adds slow") == 2)
        applying = asyncio.create_task(reconciler.apply({"fine": "fine.mar"}))
        await asyncio.sleep(0.05)
        serving.may_go_on.set()
        await applying
        assert serving.steps[-3:] == ["adds slow", "has slow", "removes slow"]
        assert reconciler.served.keys() == {"fine"}

    asyncio.run(work())


def test_an_unknown_setting_of_a_model_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"'price' has the unknown setting 'worker'.*workers, batch_size"):
        Wanted.of("price", {"url": "x", "worker": 1})


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"batch_size": "many"}, "`batch_size` cannot be 'many'"),
        ({"workers": 0}, "`workers` cannot be 0"),
        ({"batch_size": 1 << 31}, "`batch_size` cannot be 2147483648"),
        ({"response_timeout_s": float("nan")}, "`response_timeout_s` cannot be nan"),
        ({"service_envelope": "soap"}, "`service_envelope` cannot be 'soap'"),
    ],
)
def test_a_wrong_setting_of_a_model_is_refused(setting: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=f"'price': {said}"):
        Wanted.of("price", {"url": "x", **setting})


def test_a_setting_that_is_written_as_text_is_read() -> None:
    assert Wanted.of("price", {"url": "x", "batch_size": "8"}).options.batch_size == 8


def test_a_url_is_shown_without_what_proves_a_right_to_it() -> None:
    assert shown("https://key:secret@store/a.mar?signature=1") == "https://store/a.mar"
