"""Makes HTTP requests of example inputs, and converts a request's body as TorchServe does.

``inputs`` has the opposite direction.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from interpool.handler.backend.inputs import Arguments, arguments
from interpool.handler.backend.torch_save_files import read_torch_save

JSON = "application/json"
BYTES = "application/octet-stream"
_TEXT = "text/plain"
_FORM = "multipart/form-data"
# The types that JSON gives without a ``dtype``; see inputs.
_NATURAL = (torch.float32, torch.int64, torch.bool)
# More characters of JSON are not readable, and the archive would contain them.
_MOST_JSON = 1 << 20


class Form(NamedTuple):
    """A request: its header Content-Type, and its body."""

    content_type: str
    body: bytes


def forms_of(call: Arguments) -> Iterator[Form]:
    """Yield the requests that may mean a call, the most readable first.

    Raises:
        TypeError: there is none; the message names the arguments that cannot be sent.
    """
    if len(call.positional) == 1 and not call.named:
        (value,) = call.positional
        if isinstance(value, str):
            yield Form(f"{_TEXT}; charset=utf-8", value.encode())
            return
        if isinstance(value, (bytes, bytearray)):
            yield Form(BYTES, bytes(value))
            return
    given = [(f"argument {index + 1}", value) for index, value in enumerate(call.positional)]
    given += [(f"argument {name!r}", value) for name, value in call.named.items()]
    try:
        text = json.dumps(_in_json(call), ensure_ascii=False)
    except TypeError:
        text = None
    if text is not None and len(text) <= _MOST_JSON:
        yield Form(JSON, text.encode())
    saved = _saved(_content(call, list(call.positional), dict(call.named)))
    if saved is not None:
        yield Form(BYTES, saved)
    elif text is not None and len(text) > _MOST_JSON:
        yield Form(JSON, text.encode())
    elif text is None:
        raise TypeError("; ".join(_unsayable(given)))


def _content(call: Arguments, positional: list[Any], named: dict[str, Any]) -> Any:
    """The value that ``inputs`` converts to this call."""
    alone = positional[0] if len(positional) == 1 and not named else None
    if alone is not None and not isinstance(alone, dict):
        return alone
    if call.named and not call.positional and not named.keys() & {"args", "kwargs", "inputs"}:
        return named
    return {**({"args": positional} if positional else {}), **({"kwargs": named} if named else {})}


def _in_json(call: Arguments) -> Any:
    """The call as a JSON value; raises TypeError if a part has no form in JSON."""
    tensors = [each for each in (*call.positional, *call.named.values()) if isinstance(each, torch.Tensor)]
    content = _content(
        call,
        [_plain(value) for value in call.positional],
        {name: _plain(value) for name, value in call.named.items()},
    )
    types = {tensor.dtype for tensor in tensors}
    if len(types) != 1 or types <= {*_NATURAL}:
        return content
    dtype = str(types.pop()).removeprefix("torch.")
    if isinstance(content, dict) and content.keys() <= {"args", "kwargs"}:
        return {**content, "dtype": dtype}
    return {"inputs": content, "dtype": dtype}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.is_sparse or value.is_quantized:
            raise TypeError("a tensor of this kind has no form in JSON")
        return _short(value.detach().cpu())
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value


def _short(tensor: torch.Tensor) -> Any:
    """A tensor as lists, with no more digits of a float than its type needs."""
    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return tensor.tolist()

    def short(part: Any) -> Any:
        return [short(each) for each in part] if part.ndim else float(str(part))

    return short((tensor if tensor.dtype == torch.float16 else tensor.float()).numpy())


def _saved(content: Any) -> bytes | None:
    """What torch.save writes; None if it cannot, or if a server would refuse it."""
    file = io.BytesIO()
    try:
        torch.save(_cloned(content), file)
        read_torch_save("the example", file.getvalue())
    except Exception:  # noqa: BLE001 -- pickling an object may raise anything
        return None
    return file.getvalue()


def _cloned(value: Any) -> Any:
    """A copy whose tensors share no memory, and have only their elements' memory: requests need no other."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    if type(value) in (list, tuple):
        return type(value)(map(_cloned, value))
    return {name: _cloned(item) for name, item in value.items()} if type(value) is dict else value


def _unsayable(given: list[tuple[str, Any]]) -> Iterator[str]:
    for name, value in given:
        try:
            json.dumps(_plain(value))
        except TypeError:
            if _saved(value) is None:
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                yield f"{name} holds what no request can bring (it is a {kind})"


# ---- a handler's rows ---------------------------------------------------------------------------


def row_forms(row: Mapping[str, Any]) -> Iterator[Form]:
    """Yield the requests that may bring a handler this row.

    Raises:
        TypeError: there is none; the message names the field that cannot be sent.
    """
    fields = {name: _field(name, value) for name, value in row.items()}
    if len(fields) == 1:
        yield from fields.values()  # under any name: TorchServe calls it `body`
    if fields.keys() != {"body"}:
        yield _multipart(fields)


def _field(name: str, value: Any) -> Form:
    if isinstance(value, str):
        return Form(f"{_TEXT}; charset=utf-8", value.encode())
    if isinstance(value, (bytes, bytearray)):
        return Form(BYTES, bytes(value))
    try:
        return Form(JSON, json.dumps(value).encode())
    except TypeError:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(
            f"{name!r} is a {kind}, which no request brings: TorchServe gives handlers text, bytes, or "
            "what JSON holds"
        ) from None


def _multipart(fields: Mapping[str, Form]) -> Form:
    boundary = hashlib.sha256(b"".join(form.body for form in fields.values())).hexdigest()[:32]
    parts = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n'
        f"Content-Type: {form.content_type}\r\n\r\n".encode()
        + form.body
        + b"\r\n"
        for name, form in fields.items()
    )
    return Form(f"{_FORM}; boundary={boundary}", parts + f"--{boundary}--\r\n".encode())


# ---- what TorchServe makes of it ------------------------------------------------------------------


def row_of(form: Form) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request's fields as TorchServe's worker decodes them, and its headers as handlers get them."""
    fields = {"body": form}
    if form.content_type.startswith(_FORM):
        fields = _parts(form)
    row = {name: _decoded(field) for name, field in fields.items()}
    headers = {name: {"content-type": field.content_type} for name, field in fields.items()}
    return row, {**headers, "Content-Type": form.content_type}


def call_of(form: Form) -> Arguments:
    """The call that a request means.

    Raises:
        InputError: the request cannot be understood.
        ValueError: its body should be JSON, and is not.
    """
    return arguments(*row_of(form))


def _parts(form: Form) -> dict[str, Form]:
    """The parts of a form that ``_multipart`` wrote."""
    boundary = form.content_type.partition("boundary=")[2].encode()
    fields = {}
    for part in form.body.split(b"--" + boundary + b"\r\n")[1:]:
        head, _, rest = part.partition(b"\r\n\r\n")
        body, last, _ = rest.partition(b"\r\n--" + boundary)
        body = body if last else body.removesuffix(b"\r\n")
        lines = head.decode().split("\r\n")
        fields[lines[0].partition('name="')[2].removesuffix('"')] = Form(
            lines[1].removeprefix("Content-Type: "), body
        )
    return fields


def _decoded(form: Form) -> Any:
    if form.content_type == JSON:
        return json.loads(form.body)
    if form.content_type.startswith("text"):
        return form.body.decode()
    return bytearray(form.body)
