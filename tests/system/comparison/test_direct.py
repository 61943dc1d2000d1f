"""The direct address answers as TorchServe's frontend does: the same requests go to both."""

from __future__ import annotations

import difflib
import pprint
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from direct_server import DirectServer
from local_server import TorchServe
from system.comparison.archive import JSON, Archive, Request, post
from system.comparison.building import build
from system.comparison.exchange import send
from system.comparison.kinds import answers

pytestmark = pytest.mark.long

NAMES = ("answers", "received", "front")
BOUNDARY = "----boundary"
FORM = {"content_type": f"multipart/form-data; boundary={BOUNDARY}"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TorchServe, DirectServer]]:
    """A stock TorchServe, and `interpool run`, with the same archives."""
    store = tmp_path_factory.mktemp("store")
    archives = [build(Archive(name, "handler.py", [], [], config="minWorkers: 1\n"), store) for name in NAMES]
    stock = TorchServe(overlay=False, properties={"max_request_size": "1000000"})
    for archive in archives:
        (stock.store / archive.name).write_bytes(archive.read_bytes())
    direct = DirectServer(
        *archives,
        options=("--max-request-size=1000000",),
        environment={"INTERPOOL_ORDINARY_ARCHIVES": "pool"},
    )
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(direct.__enter__)
        with stock:
            try:
                for archive in archives:
                    assert stock.register(archive.name, initial_workers=1).status == 200
                started.result()
                yield stock, direct
            finally:
                direct.__exit__()


def _part(name: str, value: bytes, *, filename: str = "", content_type: str = "") -> bytes:
    disposition = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
    lines = [f"--{BOUNDARY}", f"Content-Disposition: {disposition}"]
    if content_type:
        lines.append(f"Content-Type: {content_type}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + value + b"\r\n"


def _form(*parts: bytes) -> Request:
    return Request(
        b"".join(parts) + f"--{BOUNDARY}--\r\n".encode(), FORM["content_type"], "/predictions/received"
    )


def _get(path: str, method: str = "GET") -> Request:
    return Request(None, None, path, method)


def _received(body: bytes | None, content_type: str | None = None, **more: str) -> Request:
    headers = {name.replace("_", "-"): text for name, text in more.items()}
    return Request(body, content_type, "/predictions/received", headers=headers)


KINDS = [kind for kind in answers.ANSWERS if kind not in ("big", "header", "count")]
ANSWERS = [
    *(post({"answer": kind}) for kind in KINDS),
    post({"answer": "str", "type": "text/html"}),
    post({"answer": "str", "headers": {"x-one": "1", "X-Two": "zwei"}}),
    post({"answer": "str", "headers": {"cache-control": "max-age=3"}}),
    *(post({"answer": "str", "status": status}) for status in (201, 204, 205)),
    post({"answer": "dict", "status": 418}),
    post({"all": 404}),
    post({"answer": "header"}, x_asked="yes"),
    *(post({"raise": kind}) for kind in ("value", "memory", "cuda", "key")),
    post({"refuse": 400}),
    post({"refuse": 499, "text": 'quoted "text" <&> größe'}),
    *(post({"exact": kind}) for kind in ("tuple", "none", "long", "short")),
    Request(b"{broken", JSON),
    Request(b"", JSON),
    Request(None, None),
]
RECEIVED = [
    _received(b"raw"),
    _received(b"raw", "application/octet-stream"),
    _received(b"text", "text/plain"),
    _received(b"text", "text/plain; charset=utf-8"),
    _received("größe".encode(), "text/plain"),
    _received(b'{"a": [1, null]}', JSON),
    _received(b'{"a": 1}', "application/json; charset=utf-8"),
    _received(b'{"a": 1}', "Application/JSON"),
    _received(b"\x00\xff", "image/png"),
    _received(b"x", "odd type; and more"),
    _received(b"x" * 200_000, "application/octet-stream"),
    _received(b"data=form&other=a+b%20c&empty=&data=again", "application/x-www-form-urlencoded"),
    _received(b"data=gr%C3%B6%C3%9Fe&lonely", "application/x-www-form-urlencoded"),
    _form(_part("data", b"in a form")),
    _form(_part("data", b"\x00\xff", filename="a.bin"), _part("other", b"x", content_type="text/plain")),
    _form(_part("data", b'{"a": 1}', filename="a.json", content_type=JSON)),
    _form(_part("data", b"text", filename="a.txt", content_type="text/plain; charset=utf-8")),
    _received(b"raw", x_asked="yes"),
    _received(b"raw", x_asked="gr\xf6\xdfe"),
    _received(b"raw", connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAMA"),
    _received(b"raw", "text/pl\xe4in"),
    _received(b"data=%ff&%fe=x", "application/x-www-form-urlencoded"),
    *(
        Request(b"raw", None, f"/predictions/received{rest}")
        for rest in ("/1.0", "/1.0/", "/1.0/more/parts", "/1.0/gr%C3%B6%C3%9Fe", "/", "?a=1")
    ),
    *(
        Request(b"raw", None, f"/predictions/received/1.0/{rest}")
        for rest in ("%E8%B7%AF/%F0%9F%99%82", "%E8%B7%AF%C3%B6", "%FF", "a%E8%B7b")
    ),
    Request(b"raw", None, "/explanations/received"),
    Request(b"raw", None, "/v1/models/received:predict"),
    Request(b"raw", None, "/v1/models/received:explain"),
    Request(b"raw", None, "/v2/models/received/infer"),
    Request(b"raw", None, "/v2/models/received/explain"),
    Request(b"raw", None, "/received/predict?a=1&b=two%20words"),
    Request(b"raw", None, "/received/predict?%E8%B7%AF=%F0%9F%99%82&%FF=%FF"),
    Request(b"raw", None, "/received/1.0/predict"),
    Request(b"raw", None, "/models/received/invoke?a=1"),
    Request(b"raw", None, "/invocations?model_name=received"),
    Request(b"raw", None, "/predictions/%72eceived"),
    *(Request(b"raw", None, "/predictions/received", method) for method in ("PUT", "DELETE", "PATCH")),
    _get("/predictions/received"),
    _get("/predictions/received", "HEAD"),
]
REFUSED = [
    *(
        Request(b"raw", None, f"/predictions/{name}")
        for name in ("nobody", "received/9.9", "nobody/1.0", "%C3%B6")
    ),
    *(Request(b"raw", None, path) for path in ("/predictions", "/predictions/", "/explanations", "/nowhere")),
    *(
        Request(b"raw", None, path)
        for path in ("/models/received/other", "/invocations/x", "/v1/models/nobody:predict")
    ),
    *(
        Request(b"raw", None, path)
        for path in ("/v2/models/nobody/infer", "/nobody/predict", "/v1/models/received:other")
    ),
    Request(b"raw", None, "/invocations"),
    _get("/"),
    _get("/", "POST"),
    _get("/ping"),
    _get("/ping", "POST"),
    _get("/ping/more"),
]
STREAMED = [post({"pieces": count}) for count in (0, 1, 5)]


def _comparable(server: TorchServe | DirectServer, model: str, steps: list[Request]) -> list[str]:
    story = []
    for step in steps:
        (exchange,) = send(server, model, step)  # type: ignore[arg-type]
        asked = f"{step.method} {step.path} {(step.body or b'')[:60]!r} {step.content_type}"
        story.append(pprint.pformat((asked, replace(exchange, reason="")), width=160))
    return story


@pytest.mark.parametrize(
    ("model", "steps"),
    [("answers", ANSWERS), ("received", RECEIVED), ("received", REFUSED), ("front", STREAMED)],
    ids=["answers", "received", "refused", "streamed"],
)
def test_torchserve_and_the_direct_address_answer_alike(
    servers: tuple[TorchServe, DirectServer], model: str, steps: list[Request]
) -> None:
    stock, direct = (_comparable(server, model, steps) for server in servers)
    difference = _difference(stock, direct)
    assert not difference, difference


def _difference(stock: list[str], direct: list[str]) -> str:
    lines = ["\n".join(story).splitlines() for story in (stock, direct)]
    return "\n".join(line[:400] for line in difflib.unified_diff(*lines, "stock", "direct", lineterm="", n=3))
