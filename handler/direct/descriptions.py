"""Describes the direct address and its models, by OpenAPI and by the Open Inference Protocol."""

from __future__ import annotations

from typing import Any

from interpool.handler.direct.models import Models, ModelVersion

_ERROR = {
    "type": "object",
    "required": ["code", "type", "message"],
    "properties": {
        "code": {"type": "integer", "description": "Error code."},
        "type": {"type": "string", "description": "Error type."},
        "message": {"type": "string", "description": "Error message."},
    },
}
_ANY = {"*/*": {"schema": {"type": "string", "format": "binary"}}}


def _error(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ERROR}}}


def _answer(description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": content}


_ERRORS = {
    "400": _error("The request cannot be used."),
    "404": _error("There is no such model, or no such version."),
    "408": _error("The body, or the model's answer, did not come in time."),
    "500": _error("The model's worker has ended."),
    "503": _error("The model failed, or has no worker that is free in time."),
    "507": _error("Memory was lacking."),
}
_STATUS = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}


def api_description(models: Models) -> dict[str, Any]:
    """The OpenAPI document of the whole address."""
    paths: dict[str, Any] = {
        "/": {"options": _operation("apiDescription", "Get this description.", _json({"type": "object"}))},
        "/ping": {
            "get": {
                **_operation("ping", "Get the server's health.", _json(_STATUS)),
                "responses": {
                    "200": _answer("Healthy", _json(_STATUS)),
                    "500": _answer("Unhealthy", _json(_STATUS)),
                },
            }
        },
    }
    for model in models:
        of_version = f"/predictions/{model.name}/{model.version}"
        request = model.examples.request
        paths[of_version] = _predict(model, f"predict_{model.name}_{model.version}", request)
        if models.default(model.name) is model:
            paths[f"/predictions/{model.name}"] = _predict(model, f"predict_{model.name}", request)
    return _document("TorchServe APIs", paths)


def model_api(model: ModelVersion) -> dict[str, Any]:
    """The OpenAPI document of one model."""
    name = f"predict_{model.name}"
    in_an_envelope = _predict(model, name, _ANY)
    paths = {
        f"/predictions/{model.name}": _predict(model, name, model.examples.request),
        f"/v1/models/{model.name}:predict": in_an_envelope,
        f"/v2/models/{model.name}/infer": in_an_envelope,
    }
    return _document(f"RESTful API for: {model.name}", paths)


def metadata(model: ModelVersion, models: Models) -> dict[str, Any]:
    """A model's metadata in the Open Inference Protocol.

    Args:
        model: the version of the model.
        models: all models of the address, for the model's other versions.
    """
    versions = [each.version for each in models if each.name == model.name]
    about = {"name": model.name, "versions": versions, "platform": "pytorch"}
    return {**about, "inputs": model.examples.inputs, "outputs": []}


def server_metadata() -> dict[str, Any]:
    """The server's metadata in the Open Inference Protocol."""
    return {"name": "interpool", "version": _version(), "extensions": ["binary_tensor_data"]}


def _version() -> str:
    from importlib.metadata import version

    return version("interpool")


def _document(title: str, paths: dict[str, Any]) -> dict[str, Any]:
    return {"openapi": "3.0.1", "info": {"title": title, "version": _version()}, "paths": paths}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(name: str, description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "description": description,
        "responses": {"200": _answer("Success", content)},
    }


def _predict(model: ModelVersion, name: str, request: dict[str, Any]) -> dict[str, Any]:
    operation = {
        "operationId": name,
        "description": f"Predict with {model.name}, version {model.version}.",
        "requestBody": {"content": request or _ANY, "required": True},
        "responses": {"200": _answer("The model's answer.", _ANY), **_ERRORS},
    }
    return {"post": operation}
