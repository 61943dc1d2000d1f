"""Computations of libraries for networks, events, cryptography and the system. None needs a network."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.libraries.registry import Answer, computes, error_of


@computes("uvloop")
def uvloop() -> Answer:
    """Timers, threads and sockets of an event loop."""
    import asyncio

    import uvloop

    async def work() -> Answer:
        reader, writer = await asyncio.open_connection(sock=here)
        writer.write(b"ping\n")
        line = (await asyncio.gather(reader.readline(), asyncio.sleep(0.01)))[0]
        writer.close()
        inside = await asyncio.to_thread(sum, range(100))
        return [line, inside]

    here, there = socket.socketpair()
    with there:
        there.sendall(b"pong\n")
        loop = uvloop.new_event_loop()
        try:
            return loop.run_until_complete(work())
        finally:
            loop.close()


@computes("gevent")
def gevent() -> Answer:
    """Greenlets that wait for each other."""
    import gevent
    from gevent.queue import Queue

    queue: Any = Queue(2)

    def produce() -> None:
        for number in range(20):
            queue.put(number)
            gevent.sleep(0)
        queue.put(None)

    producer = gevent.spawn(produce)
    found = list(iter(queue.get, None))
    producer.join()
    with gevent.Timeout(0.01, False):
        gevent.sleep(10)
    return [found, gevent.get_hub().threadpool.apply(sum, ([1, 2, 3],))]


@computes("greenlet")
def greenlet() -> Answer:
    """Switches, and an exception across them."""
    import greenlet

    def child(value: int) -> int:
        while True:
            value = parent.switch(value * 2)
            if value > 50:
                raise ValueError(value)

    parent = greenlet.getcurrent()
    other = greenlet.greenlet(child)
    found = [other.switch(number) for number in range(20)]
    return [*found, error_of(ValueError, other.switch, 60).args]


@computes("grpcio")
def grpc() -> Answer:
    """A server and a client over a unix socket."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request[::-1])
    with tempfile.TemporaryDirectory() as folder:
        server = grpc.server(ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("trial", {"turn": handler}),))
        server.add_insecure_port(f"unix:{folder}/s")
        server.start()
        try:
            with grpc.insecure_channel(f"unix:{folder}/s") as channel:
                turn = channel.unary_unary("/trial/turn")
                answers: Answer = [turn(b"abc %d" % number, timeout=60) for number in range(5)]
                refused = error_of(grpc.RpcError, channel.unary_unary("/trial/none"), b"", timeout=60)
                answers.append(refused.code().name)
        finally:
            server.stop(None).wait()
    return answers


@computes("aiohttp")
def aiohttp() -> Answer:
    """A server and a client over a unix socket."""
    import asyncio

    import aiohttp
    from aiohttp import web

    async def work(path: str) -> Answer:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"got": await request.json(), "query": request.query["a"]})

        app = web.Application()
        app.router.add_post("/", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.UnixSite(runner, path).start()
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session,
                session.post("http://here/?a=b", json=[1, 2]) as response,
            ):
                return [response.status, await response.json()]
        finally:
            await runner.cleanup()

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(work(f"{folder}/s"))


@computes("httpx")
def httpx() -> Answer:
    """A client, answered in the process."""
    import httpx

    with httpx.Client(
        transport=httpx.MockTransport(lambda asked: httpx.Response(200, json=str(asked.url)))
    ) as client:
        return [client.get("http://here/", params={"a": "b"}).json()]


@computes("requests")
def requests() -> Answer:
    """A request prepared, and one that is refused."""
    import requests

    prepared = requests.Request("POST", "http://here/", params={"a": "b"}, json={"c": 1}).prepare()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no server listens there
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        refused = error_of(requests.ConnectionError, requests.get, url, timeout=10)
    return [prepared.url, prepared.body, type(refused).__name__]


@computes("pycurl")
def pycurl() -> Answer:
    """A file fetched, through a callback."""
    import pycurl

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(b"text" * 1000)
        parts: list[bytes] = []
        curl = pycurl.Curl()
        curl.setopt(pycurl.URL, path.as_uri())
        curl.setopt(pycurl.WRITEFUNCTION, parts.append)
        curl.perform()
        curl.close()
    return [len(b"".join(parts))]


@computes("pyzmq")
def zmq() -> Answer:
    """Messages between threads."""
    import zmq

    context = zmq.Context()
    server = context.socket(zmq.REP)
    port = server.bind_to_random_port("tcp://127.0.0.1")

    def serve() -> None:
        for _ in range(5):
            server.send(server.recv()[::-1])

    thread = threading.Thread(target=serve)
    thread.start()
    client = context.socket(zmq.REQ)
    client.connect(f"tcp://127.0.0.1:{port}")
    answers: Answer = []
    for number in range(5):
        client.send(b"abc %d" % number)
        answers.append(client.recv())
    thread.join()
    client.close()
    server.close()
    context.term()
    return answers


@computes("cryptography")
def cryptography() -> Answer:
    """Encrypted, signed, derived; a bad signature."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(hashes.SHA256(), 32, None, None).derive(b"secret")
    sealed = AESGCM(key).encrypt(b"n" * 12, b"text", b"with")
    signer = ed25519.Ed25519PrivateKey.from_private_bytes(key)
    public = signer.public_key()
    public.verify(signer.sign(b"text"), b"text")
    refused = error_of(InvalidSignature, public.verify, signer.sign(b"text"), b"other")
    raw = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return [sealed.hex(), raw, type(refused).__name__]


@computes("pynacl")
def nacl() -> Answer:
    """Sealed and opened."""
    from nacl.secret import SecretBox

    box = SecretBox(b"k" * 32)
    sealed = box.encrypt(b"text", b"n" * 24)
    return [sealed.hex(), box.decrypt(sealed)]


@computes("bcrypt")
def bcrypt() -> Answer:
    """A password hashed."""
    import bcrypt

    return [bcrypt.hashpw(b"password", b"$2b$04$" + b"a" * 21 + b"e")]


@computes("psutil")
def psutil() -> Answer:
    """This process, and the machine."""
    import os

    import psutil

    missing = str(error_of(psutil.NoSuchProcess, psutil.Process, 2**22 + 1))
    return [psutil.Process().pid == os.getpid(), psutil.virtual_memory().total, psutil.cpu_count(), missing]


@computes("cffi")
def cffi() -> Answer:
    """A C library called, with a callback."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef("void qsort(void *, size_t, size_t, int (*)(const void *, const void *)); double sqrt(double);")
    library = ffi.dlopen("libm.so.6")

    @ffi.callback("int(const void *, const void *)")
    def compare(left: Any, right: Any) -> int:
        return int(ffi.cast("int *", left)[0] - ffi.cast("int *", right)[0])

    numbers = ffi.new("int[]", [5, 3, 9, 1])
    ffi.dlopen(None).qsort(numbers, 4, 4, compare)
    return [list(numbers), library.sqrt(2.0)]
