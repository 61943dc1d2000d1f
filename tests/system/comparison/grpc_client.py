"""TorchServe's gRPC interfaces, by the descriptions that its own jar holds."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import grpc
from grpc_tools import protoc
from local_server import TorchServe

PROTOS = ("inference.proto", "management.proto", "google/rpc/status.proto")
WELL_KNOWN = Path(protoc.__file__).parent / "_proto"


@cache
def _modules() -> dict[str, Any]:
    """The generated modules, by the interface's name."""
    folder = mkdtemp(prefix="ip-grpc-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = importlib.util.find_spec("ts")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(Path(found.origin).parent / "frontend" / "model-server.jar") as jar:
        for name in PROTOS:
            jar.extract(name, folder)
    command = [
        "protoc",
        f"-I{folder}",
        f"-I{WELL_KNOWN}",
        f"--python_out={folder}",
        f"--grpc_python_out={folder}",
    ]
    assert protoc.main([*command, *PROTOS]) == 0
    sys.path.insert(0, folder)
    try:
        return {
            name: importlib.import_module(name)
            for name in ("inference_pb2", "inference_pb2_grpc", "management_pb2", "management_pb2_grpc")
        }
    finally:
        sys.path.remove(folder)


class Client:
    """Both interfaces of one server. What it gives is made to be compared."""

    def __init__(self, server: TorchServe) -> None:
        modules = _modules()
        self._messages = {**vars(modules["inference_pb2"]), **vars(modules["management_pb2"])}
        self._channels = [grpc.insecure_channel(f"127.0.0.1:{port}") for port in server.grpc_ports]
        inference, management = self._channels
        self._inference = modules["inference_pb2_grpc"].InferenceAPIsServiceStub(inference)
        self._management = modules["management_pb2_grpc"].ManagementAPIsServiceStub(management)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def ping(self) -> object:
        from google.protobuf.empty_pb2 import Empty

        return _said(lambda: self._inference.Ping(Empty(), timeout=60).health)

    def predict(self, model: str, version: str = "", **inputs: bytes) -> object:
        request = self._request(model, version, inputs)
        return _said(lambda: self._inference.Predictions(request, timeout=120).prediction)

    def stream(self, model: str, **inputs: bytes) -> object:
        request = self._request(model, "", inputs)
        return _said(lambda: [a.prediction for a in self._inference.StreamPredictions(request, timeout=120)])

    def manage(self, call: str, message: str, **fields: object) -> object:
        request = self._messages[message](**fields)
        return _said(lambda: getattr(self._management, call)(request, timeout=300).msg)

    def _request(self, model: str, version: str, inputs: dict[str, bytes]) -> Any:
        return self._messages["PredictionsRequest"](model_name=model, model_version=version, input=inputs)


def _said(call: Callable[[], object]) -> object:
    """What a call gave, or the code and the text that it was refused with."""
    try:
        return call()
    except grpc.RpcError as error:
        return (error.code().name, error.details())
