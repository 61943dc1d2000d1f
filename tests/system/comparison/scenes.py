"""What clients and operators do with one model, as a list of what the server answered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local_server import JSON, Answer, TorchServe
from system.comparison import front
from system.comparison.archive import Request, post, post_bytes
from system.comparison.exchange import send
from system.comparison.front import Way, comparable
from system.comparison.grpc_client import Client
from waiting import wait_for

Story = list[object]
Scene = Callable[[TorchServe, Way, Path], Story]


def _says(server: TorchServe, answer: Answer) -> object:
    return answer.status, comparable(server, answer.text)


def management(server: TorchServe, way: Way, _scratch: Path) -> Story:
    """Registering, describing, scaling, versions, and what is refused."""
    name = f"managed_{way.value}"
    archive = front.make(way, name, server.store)
    url = f"{server.management}/models"
    story: Story = [
        server.register("nothing.mar"),
        server.register("../outside.mar"),
        server.register(archive, initial_workers=0),
        server.predict(name, {}, timeout=30),
        server.register(archive),
        server.scale(name, 2),
        server.request("PUT", f"{url}/{name}", min_worker=3, max_worker=2),
        server.request("PUT", f"{url}/nobody", min_worker=1),
        server.predict(name, {"a": 1}),
        server.request("GET", f"{url}/{name}"),
        server.request("GET", f"{url}/{name}/all"),
        server.request("GET", f"{url}/{name}", customized=True),
        server.request("GET", f"{url}/{name}/9.9"),
    ]
    front.make(way, name, server.store, version="2.0")
    story += [
        server.register(archive, initial_workers=1, batch_size=3, max_batch_delay=7, response_timeout=50),
        server.predict(f"{name}/2.0", {"b": 2}),
        server.predict(name, {"b": 2}),
        server.request("PUT", f"{url}/{name}/2.0/set-default"),
        server.request("PUT", f"{url}/{name}/7.0/set-default"),
        server.predict(name, {"b": 3}),
        server.unregister(f"{name}/2.0"),
        server.unregister(f"{name}/1.0"),
        server.unregister(f"{name}/2.0"),
        server.unregister(name),
        server.predict(name, {}),
    ]
    return [_says(server, answer) for answer in story if isinstance(answer, Answer)]


def requests(server: TorchServe, way: Way, _scratch: Path) -> Story:
    """Predictions of every form, pieces and errors."""
    name = f"asked_{way.value}"
    assert server.register(front.make(way, name, server.store), initial_workers=2).status == 200
    steps = [
        post({"a": [1, None]}),
        post("text"),
        post_bytes(b"raw"),
        Request(b"text", "text/plain"),
        Request(b"data=form", "application/x-www-form-urlencoded"),
        Request(None, None, path="/predictions/{model}?data=query", method="GET"),
        Request(b"{broken", JSON),
        Request(b'{"a": 1}', JSON, path="/v1/models/{model}:predict"),
        Request(b'{"a": 1}', JSON, path="/explanations/{model}"),
        post({"pieces": 2}),
        post({"raise": "no"}),
        Request(None, None, path="/ping", method="GET"),
        Request(None, None, path="/api-description", method="GET"),
        Request(None, None, method="OPTIONS", path="/"),
        Request(b"", JSON, path="/nowhere"),
    ]
    story: Story = [answer for step in steps for answer in send(server, name, step)]
    with ThreadPoolExecutor(8) as threads:
        story += sorted(threads.map(lambda n: server.predict(name, {"n": n}).text, range(16)))
    form = server.post_form(
        name, {"data": (b"in a form", None), "other": (b"\x00", "application/octet-stream")}
    )
    story.append(_says(server, form))
    assert server.unregister(name).status == 200
    return story


def batches(server: TorchServe, way: Way, scratch: Path) -> Story:
    """A batch waits for its members or its time; what comes meanwhile is in the next one."""
    name = f"batched_{way.value}"
    archive = front.make(way, name, server.store)
    assert server.register(archive, batch_size=3, max_batch_delay=100).status == 200
    started, end = scratch / "started", scratch / "end"
    with ThreadPoolExecutor(5) as threads:
        first = threads.submit(server.predict, name, {"started": str(started), "until": str(end)})
        wait_for(started.exists, "the first batch")
        later = [threads.submit(server.predict, name, {"n": n}) for n in range(4)]
        end.touch()
        answers = [first.result(), *(one.result() for one in later)]
    assert server.unregister(name).status == 200
    return [(answer.status, answer.json["batch size"]) for answer in answers]


def tickets(server: TorchServe, way: Way, scratch: Path) -> Story:
    """With job tickets, a request that finds no idle worker is refused at once."""
    name = f"tickets_{way.value}"
    config = "minWorkers: 1\nmaxWorkers: 1\nuseJobTicket: true\n"
    archive = front.make(way, name, server.store, config=config)
    story: Story = [server.register(archive).status]
    started, end = scratch / "started", scratch / "end"
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(server.predict, name, {"started": str(started), "until": str(end)})
        wait_for(started.exists, "the first request")
        story.append(_says(server, server.predict(name, {"second": 2})))
        end.touch()
        story.append(first.result().status)
    wait_for(lambda: server.predict(name, {}).status == 200, "a ticket")
    assert server.unregister(name).status == 200
    return story


def grpc(server: TorchServe, way: Way, _scratch: Path) -> Story:
    """Inference, streaming and management over gRPC."""
    name = f"grpc_{way.value}"
    archive = front.make(way, name, server.store)
    client = Client(server)

    def manage(call: str, message: str, **fields: object) -> object:
        said = client.manage(call, message, **fields)
        return comparable(server, said) if isinstance(said, str) else said

    def scaled() -> object:
        """What it says once both workers run; a worker that is just being started again is not counted."""
        said: list[object] = []

        def is_done() -> bool:
            fields = {"min_worker": 2, "max_worker": 2, "synchronous": True}
            said.append(manage("ScaleWorker", "ScaleWorkerRequest", model_name=name, **fields))
            return "scaling in progress" not in str(said[-1])

        wait_for(is_done, "two workers", pause=0.1)
        return said[-1]

    try:
        return [
            client.ping(),
            client.predict(name, data=b"nobody's"),
            manage("RegisterModel", "RegisterModelRequest", url="nothing.mar"),
            manage("RegisterModel", "RegisterModelRequest", url=archive, initial_workers=1, synchronous=True),
            manage("DescribeModel", "DescribeModelRequest", model_name=name),
            manage("DescribeModel", "DescribeModelRequest", model_name="nobody"),
            client.predict(name, data=b"raw"),
            client.predict(name, body=json.dumps({"a": 1}).encode()),
            client.predict(name, "1.0", data=b"raw"),
            client.predict(name, "9.0", data=b"raw"),
            client.stream(name, data=b"raw"),
            scaled(),
            manage("SetDefault", "SetDefaultRequest", model_name=name, model_version="1.0"),
            manage("SetDefault", "SetDefaultRequest", model_name=name, model_version="3.0"),
            manage("UnregisterModel", "UnregisterModelRequest", model_name=name),
            manage("UnregisterModel", "UnregisterModelRequest", model_name=name),
        ]
    finally:
        client.close()


def workflows(server: TorchServe, way: Way, _scratch: Path) -> Story:
    """A workflow of a model between two functions."""
    name = f"flow_{way.value}"
    archive = front.make(way, f"member_{way.value}", server.store)
    workflow = front.make_workflow(name, archive, server.store)
    url = f"{server.management}/workflows"
    predict = f"{server.inference}/wfpredict/{name}"
    registered = server.request("POST", url, url=workflow, timeout=300)
    answer = server.request("POST", predict, b"hello", "text/plain")
    assert (registered.status, answer.status) == (200, 200), (registered.text, answer.text)
    story = [
        server.request("POST", url, url="nothing.war"),
        registered,
        server.request("POST", url, url=workflow),
        server.request("GET", f"{url}/{name}"),
        answer,
        server.request("POST", predict, b'{"raise": "no"}', JSON),
        server.request("POST", f"{server.inference}/wfpredict/nobody", b"x", "text/plain"),
        server.request("DELETE", f"{url}/{name}"),
        server.request("DELETE", f"{url}/{name}"),
    ]
    return [_says(server, answer) for answer in story]


def metrics(server: TorchServe, way: Way, _scratch: Path) -> Story:
    """The names, labels and counts that the metrics address has for the model."""
    name = f"measured_{way.value}"
    assert server.register(front.make(way, name, server.store)).status == 200
    for number in range(3):
        assert server.predict(name, {"n": number}).status == 200
    assert server.predict(name, {"raise": "no"}).status == 503

    def shown() -> list[str]:
        text = server.request("GET", f"{server.metrics}/metrics").text
        lines = sorted(line for line in text.splitlines() if name in line)
        lines = [re.sub(r'hostname="[^"]*"|W-\d+', "VARIES", line) for line in lines]
        return [line if "_requests_total" in line else line.rpartition(" ")[0] for line in lines]

    wait_for(lambda: any("PredictionTime" in line for line in shown()), "metrics of the model")
    story: Story = list(shown())
    assert server.unregister(name).status == 200
    return story


SCENES: list[Scene] = [management, requests, batches, tickets, grpc, workflows, metrics]
