"""The direct address's parts that need no pool: addresses, tokens, paths, forms."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpool.handler.direct.forms import parameters_of
from interpool.handler.direct.job import Answer, Refusal
from interpool.handler.direct.listening import Address
from interpool.handler.direct.paths import understand
from interpool.handler.direct.replies import head_of
from interpool.handler.direct.tokens import KeyFile
from interpool.handler.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "shown", "local"),
    [
        ("127.0.0.1:8090", "127.0.0.1:8090", True),
        (":8090", "127.0.0.1:8090", True),
        ("8090", "127.0.0.1:8090", True),
        ("localhost:80", "localhost:80", True),
        ("0.0.0.0:8090", "0.0.0.0:8090", False),
        ("[::1]:8090", "[::1]:8090", True),
        ("unix:/run/x.sock", "unix:/run/x.sock", True),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, shown: str, local: bool) -> None:
    address = Address.of_text(text)
    assert (str(address), address.is_local) == (shown, local)


@pytest.mark.parametrize("text", ["host:", "host:http", "host:70000", "unix:relative", "127.0.0.1"])
def test_an_address_at_which_no_server_can_listen_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="direct address"):
        Address.of_text(text)


def test_a_socket_that_was_left_is_replaced_and_another_file_is_not(tmp_path: Path) -> None:
    address = Address.of_text(f"unix:{tmp_path}/s")
    for _ in range(2):
        for bound in address.bind():
            bound.close()
    (tmp_path / "s").unlink()
    (tmp_path / "s").write_text("mine")
    with pytest.raises(OSError, match="exists"):
        address.bind()
    assert (tmp_path / "s").read_text() == "mine"


def test_a_socket_at_which_a_process_listens_is_left_to_it(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "s"))
    (first,) = address.bind()
    with first, closing(socket.socket(socket.AF_UNIX)) as client:
        first.listen(0)
        with pytest.raises(OSError, match="in use"):
            address.bind()
        first.accept()[0].close()
        client.connect(address.path)
        with pytest.raises(OSError, match="in use"):  # and no client has room now
            address.bind()


def test_a_name_is_bound_at_all_addresses_that_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0)),  # of no machine
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: places)
    bound = Address("here", 0).bind()
    try:
        hosts, ports = zip(*(each.getsockname() for each in bound), strict=True)
        assert hosts == ("127.0.0.1", "127.0.0.2")
        assert len(set(ports)) == 1
    finally:
        for each in bound:
            each.close()


def test_an_address_that_this_machine_does_not_have_cannot_be_bound() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        Address("203.0.113.1", 8090).bind()


def _keys(path: Path, key: str, minutes: float) -> None:
    until = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
    text = until.strftime("%Y-%m-%dT%H:%M:%S.123456789Z")  # as Java writes it
    entries = {"inference": {"key": key, "expiration time": text}, "API": {"key": "x"}}
    path.write_text(json.dumps(entries))


def _may(keys: KeyFile, header: bytes) -> bool:
    refused: list[Refusal] = []
    try:
        keys.guard({b"authorization": header} if header else {})
    except Refusal as refusal:
        refused.append(refusal)
    assert all((each.status, each.kind) == (400, "InvalidKeyException") for each in refused)
    return not refused


def test_a_token_is_good_until_its_end_or_until_there_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "key_file.json"
    keys = KeyFile(path)
    assert not _may(keys, b"Bearer one")
    _keys(path, "one", 5)
    assert _may(keys, b"Bearer one")
    assert _may(keys, b"Bearer   one")
    assert not any(
        _may(keys, wrong) for wrong in (b"", b"one", b"bearer one", b"Bearer on", b"Bearer one two")
    )
    _keys(path, "another", 5)
    assert (_may(keys, b"Bearer one"), _may(keys, b"Bearer another")) == (False, True)
    path.write_text('{"inference": {"key"')  # TorchServe is writing it
    assert _may(keys, b"Bearer another")
    _keys(path, "another", -1)
    assert not _may(keys, b"Bearer another")
    os.unlink(path)
    assert not _may(keys, b"Bearer another")


def test_no_key_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text('{"inference": {"key": ""}}')
    assert not _may(KeyFile(tmp_path / "keys"), b"")


def _is_answered_or_4xx(work: Callable[[], object]) -> bool:
    try:
        work()
    except Refusal as refusal:
        return 400 <= refusal.status < 500
    return True


@given(st.text(max_size=60), st.binary(max_size=60), st.sampled_from(["GET", "POST", "OPTIONS"]))
def test_any_path_is_understood_or_refused_by_a_4xx(path: str, raw: bytes, method: str) -> None:
    assert _is_answered_or_4xx(lambda: understand(path, raw, method))


@pytest.mark.parametrize(
    "path", ["/models", "/models/m", "/models/m/1.0/set-default", "/workflows", "/workflows/w/", "/token"]
)
def test_no_request_reaches_the_management_interface(path: str) -> None:
    """TorchServe has it at the inference address if both have the same address."""
    with pytest.raises(Refusal) as refused:
        understand(path, path.encode(), "POST")
    assert refused.value.status == 404
    assert understand("/models/m/invoke", b"/models/m/invoke", "POST").model == "m"


BOUNDARY = b"b"
PIECES = st.lists(
    st.sampled_from(
        [
            b"--b",
            b"--b--",
            b"\r\n",
            b'Content-Disposition: form-data; name="a"',
            b'Content-Disposition: form-data; name="a"; filename="f"',
            b"Content-Type: text/plain",
            b"value",
            b"%",
            b"%41",
            b"=",
            b"&",
        ]
    ),
    max_size=16,
)


FORMS = [
    b"multipart/form-data; boundary=b",
    b"multipart/form-data; boundary=",
    b"application/x-www-form-urlencoded",
]


@given(PIECES, st.sampled_from(FORMS))
def test_any_form_is_read_or_refused_by_a_4xx(pieces: list[bytes], content_type: bytes) -> None:
    assert _is_answered_or_4xx(lambda: parameters_of(content_type, b"".join(pieces)))


def test_a_form_of_many_fields_is_refused() -> None:
    with pytest.raises(Refusal, match="more than 1000"):
        parameters_of(b"application/x-www-form-urlencoded", b"a=1&" * 2000)


@pytest.mark.parametrize("field", [b"ab&", b"a=1&", b"&", b"a=%41&"])
def test_a_form_of_very_many_fields_is_refused_at_little_cost(field: bytes) -> None:
    body = field * (6_000_000 // len(field)) + b"a=1&" * 1001
    tracemalloc.start()
    try:
        began = time.process_time()
        with pytest.raises(Refusal, match="more than 1000"):
            parameters_of(b"application/x-www-form-urlencoded", body)
        assert time.process_time() - began < 0.5
        assert tracemalloc.get_traced_memory()[1] < 2 * len(body)
    finally:
        tracemalloc.stop()


def test_a_form_may_have_empty_fields() -> None:
    found = parameters_of(b"application/x-www-form-urlencoded", b"&&a=1&&b=2&")
    assert found == [(b"a", b"", b"1"), (b"b", b"", b"2")]


CONTROL = {*range(9), *range(10, 32), 127}


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_a_handlers_text_stays_inside_its_header(name: bytes, value: bytes, kind: bytes) -> None:
    for found, said in head_of(Answer(200, kind, [(name, value)], b""), b"id", []):
        assert not CONTROL & set(said)
        assert not CONTROL & set(found)
        assert found == found.strip()
        assert found not in (b"content-length", b"transfer-encoding")
