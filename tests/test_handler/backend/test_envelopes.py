"""What TorchServe's request envelopes mean to modules and callables without handler code."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
import torch
from answers import read
from tensor_bytes import saved
from test_handler.backend.doubling import Doubles
from ts.context import Context, RequestProcessor

from interpool.handler.backend.defaults import DefaultHandler
from interpool.handler.backend.inputs import Arguments
from interpool.native.archive.format import SERVED_PLAINLY

MODEL = {"modelName": "m", "modelVersion": "2.1"}


STACKED: Any = {**SERVED_PLAINLY, "batches": "stack", "parts": "rows"}


def _handle(
    entry: Any, envelope: str, rows: list[dict[str, Any]], proven: Any = None, **headers: str
) -> tuple[list[Any], Any]:
    context = Context("m", "/nowhere", {"model": MODEL}, 1, None, "0")
    context.request_processor = [RequestProcessor(dict(headers)) for _ in rows]
    context.request_ids = {index: f"request-{index}" for index in range(len(rows))}
    serving = STACKED if isinstance(entry, torch.nn.Module) else SERVED_PLAINLY
    handler = DefaultHandler(
        entry, "m", tracebacks=False, envelope=envelope, manifest=MODEL, serving=serving, proven=proven
    )
    return read(handler.handle(rows, context), context), [
        context.get_response_status(i)[0] for i in range(len(rows))
    ]


def _ask(
    entry: Any, envelope: str, *bodies: Any, proven: Any = None, **headers: str
) -> tuple[list[Any], Any]:
    return _handle(entry, envelope, [{"body": body} for body in bodies], proven, **headers)


def _v2(*inputs: tuple[str, list[int], str, list[Any]], **more: Any) -> dict[str, Any]:
    described = [dict(zip(("name", "shape", "datatype", "data"), each, strict=True)) for each in inputs]
    return {"inputs": described, **more}


def _outputs(entry: Any, *inputs: tuple[str, list[int], str, list[Any]]) -> list[dict[str, Any]]:
    ((answer,), codes) = _ask(entry, "kservev2", _v2(*inputs))
    assert codes == [200], answer
    outputs: list[dict[str, Any]] = answer["outputs"]
    return outputs


# ---- body ------------------------------------------------------------------------------------------


def test_body_takes_one_field_and_leaves_the_others() -> None:
    rows = [{"body": [1, 2], "other": b"x"}]
    assert _handle(Doubles(), "body", rows) == ([[2, 4]], [200])
    assert _handle(Doubles(), "body", [{"other": b"x"}])[1] == [400]


# ---- instances -------------------------------------------------------------------------------------


@pytest.mark.parametrize("envelope", ["json", "kserve"])
def test_each_instance_is_a_sample_and_all_of_a_batch_run_at_once(envelope: str) -> None:
    model = Doubles()
    bodies = {"instances": [[1, 2], [3, 4]]}, {"instances": [[5, 6]]}
    answers, codes = _ask(model, envelope, *bodies, proven=Arguments((torch.tensor([1, 2]),), {}))
    assert answers == [{"predictions": [[2, 4], [6, 8]]}, {"predictions": [[10, 12]]}]
    assert (codes, model.seen) == ([200, 200], [(3, 2)])


def test_instances_are_the_body_in_bytes_too_and_may_be_none() -> None:
    assert _ask(Doubles(), "kserve", b'{"instances": [[1]]}')[0] == [{"predictions": [[2]]}]
    assert _ask(Doubles(), "kserve", {"instances": []}) == ([{"predictions": []}], [200])


def test_instances_have_one_type_together() -> None:
    seen: list[torch.dtype] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.dtype)
        return x

    body = {"instances": [[1, 2], [1.5, 2]]}
    assert _ask(keep, "kserve", body)[0] == [{"predictions": [[1, 2], [1.5, 2]]}]
    assert seen == [torch.float32, torch.float32]
    seen.clear()
    _ask(keep, "kserve", {"instances": [[1, 2]], "dtype": "float64"})
    assert seen == [torch.float64]


def test_numbers_are_samples_of_a_module_and_numbers_to_a_callable() -> None:
    model = Doubles()
    proven = Arguments((torch.tensor(1.0),), {})
    found = _ask(model, "kserve", {"instances": [1, 2.5]}, proven=proven)[0]
    assert found == [{"predictions": [2.0, 5.0]}]
    assert model.seen == [(2,)]
    assert _ask(repr, "kserve", {"instances": [1, "two"]})[0] == [{"predictions": ["1", "'two'"]}]


def test_instances_that_are_objects_are_keyword_arguments() -> None:
    model = Doubles()
    body = {"instances": [{"x": [1], "bias": [1.0]}, {"x": [2], "bias": [2]}]}
    proven = Arguments((), {"x": torch.tensor([1]), "bias": torch.tensor([1.0])})
    assert _ask(model, "kserve", body, proven=proven)[0] == [{"predictions": [[3.0], [6.0]]}]
    assert model.seen == [(2, 1)]


def test_instances_of_other_shapes_run_one_at_a_time() -> None:
    model = Doubles()
    assert _ask(model, "kserve", {"instances": [[1], [1, 2]]})[0] == [{"predictions": [[2], [2, 4]]}]
    assert model.seen == [(1, 1), (1, 2)]


def test_base64_is_bytes_and_a_tensor_file_a_tensor() -> None:
    text = base64.b64encode(b"\0abc").decode()
    answers, _ = _ask(
        lambda x, k=None: x or k, "kserve", {"instances": [{"b64": text}, {"x": {"b64": text}}]}
    )
    assert answers == [{"predictions": [{"b64": text}, {"b64": text}]}]
    file = base64.b64encode(saved(torch.tensor([1.0]))).decode()
    body = {"instances": [{"b64": file}]}
    assert _ask(Doubles(), "json", body)[0] == [{"predictions": [[2.0]]}]


def test_a_failing_instance_fails_its_request_alone() -> None:
    answers, codes = _ask(
        Doubles(),
        "kserve",
        {"instances": [[1], [9999]]},
        {"instances": [[2]]},
        {"instance": []},
        b"no",
        b"[1]",
    )
    assert codes == [503, 200, 400, 400, 400]
    assert answers[1] == {"predictions": [[4]]}
    assert "too much" in answers[0]["message"]
    assert '{"instances": [...]}' in answers[2]["message"]


# ---- the second version ----------------------------------------------------------------------------


def test_a_tensor_has_the_shape_that_the_request_says() -> None:
    model = Doubles()
    (output,) = _outputs(model, ("x", [2, 3], "FP32", [1, 2, 3, 4, 5, 6]))
    assert output == {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [2.0, 4, 6, 8, 10, 12]}
    _outputs(model, ("x", [1, -1], "INT64", [[1, 2]]))
    assert model.seen == [(2, 3), (1, 2)]


def test_the_answer_names_request_and_model() -> None:
    body = _v2(("x", [1], "INT64", [1]))
    answers, _ = _ask(Doubles(), "kservev2", body, {**body, "id": "mine"})
    assert [answer["id"] for answer in answers] == ["request-0", "mine"]
    assert (answers[0]["model_name"], answers[0]["model_version"]) == ("m", "2.1")


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [True, False]),
        *(
            (name, [1, 2])
            for name in ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
        ),
        *((name, [1.5, -2.0]) for name in ("FP16", "BF16", "FP32", "FP64")),
    ],
)
def test_every_datatype_comes_back_as_itself(datatype: str, data: list[Any]) -> None:
    (output,) = _outputs(lambda x: x, ("x", [2], datatype, data))
    assert output == {"name": "x", "shape": [2], "datatype": datatype, "data": data}


@pytest.mark.parametrize(
    ("shape", "data", "value"),
    [
        ([1], ["a"], "'a'"),
        ([2], ["a", "b"], "['a', 'b']"),
        ([2, 1], ["a", "b"], "[['a'], ['b']]"),
        ([-1], ["a", "b"], "['a', 'b']"),
        ([0], [], "[]"),
    ],
)
def test_bytes_are_strings(shape: list[int], data: list[str], value: str) -> None:
    (output,) = _outputs(repr, ("x", shape, "BYTES", data))
    assert output == {"name": "x", "shape": [1], "datatype": "BYTES", "data": [value]}


def test_bytes_in_base64_are_bytes_both_ways() -> None:
    described = {"name": "x", "shape": [1], "datatype": "BYTES", "data": ["AAE="]}
    described["parameters"] = {"content_type": "base64"}
    answers, _ = _ask(lambda x: x, "kservev2", {"inputs": [described]})
    assert answers[0]["outputs"] == [described]
    answers, codes = _ask(Doubles(), "kservev2", {"inputs": [described]})
    assert codes == [400]
    assert "takes tensors, not bytes" in answers[0]["message"]


def test_several_inputs_are_keyword_arguments() -> None:
    (output,) = _outputs(Doubles(), ("bias", [1], "INT64", [5]), ("x", [1, 2], "INT64", [1, 2]))
    assert (output["shape"], output["data"]) == ([1, 2], [7, 9])


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        ((torch.ones(1), torch.ones(2)), ["x", "output-1"]),
        ({"logits": torch.ones(1), "text": "t"}, ["logits", "text"]),
        ([1, 2], ["x"]),
    ],
)
def test_outputs_are_named_by_the_model_or_after_the_inputs(returned: Any, names: list[str]) -> None:
    outputs = _outputs(lambda _x: returned, ("x", [1], "INT64", [1]))
    assert [output["name"] for output in outputs] == names


@pytest.mark.parametrize(
    ("returned", "shape", "datatype", "data"),
    [
        (3, [1], "INT64", [3]),
        ([1, 2.5], [2], "FP64", [1.0, 2.5]),
        ([[1, 2], [3, 4]], [2, 2], "INT64", [1, 2, 3, 4]),
        ([True], [1], "BOOL", [True]),
        (["a", "b"], [2], "BYTES", ["a", "b"]),
        ([{"label": "cat"}], [1], "BYTES", ['{"label": "cat"}']),
        ([[1], [1, 2]], [2], "BYTES", ["[1]", "[1, 2]"]),
        (np.float32([1.5]), [1], "FP32", [1.5]),
        (np.array(["a"]), [1], "BYTES", ["a"]),
        (None, [1], "BYTES", ["null"]),
    ],
)
def test_an_output_that_is_no_tensor_is_an_output_too(
    returned: Any, shape: list[int], datatype: str, data: list[Any]
) -> None:
    (output,) = _outputs(lambda _x: returned, ("x", [1], "INT64", [1]))
    assert output == {"name": "x", "shape": shape, "datatype": datatype, "data": data}


@pytest.mark.parametrize(
    "body",
    [
        {"instances": []},
        {"inputs": []},
        {"inputs": [1]},
        _v2(("x", [3], "FP32", [1.0])),
        _v2(("x", [1], "FP31", [1.0])),
        _v2(("x", [1], "INT64", [1.5])),
        _v2(("x", [1], "INT8", [300])),
        _v2(("x", [2], "BYTES", ["a"])),
        _v2(("x", [1], "BYTES", [1])),
        _v2(("x", ["1"], "FP32", [1])),
        _v2(("x", [1], "FP32", [1]), ("x", [1], "FP32", [1])),
        {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32"}]},
    ],
)
def test_a_request_that_is_not_in_the_form_is_refused_and_leaves_the_others(body: Any) -> None:
    answers, codes = _ask(Doubles(), "kservev2", body, _v2(("x", [1], "INT64", [1])))
    assert codes == [400, 200], answers


# ---- explanations ----------------------------------------------------------------------------------


class Explains(Doubles):
    def explain(self, x: torch.Tensor, bias: Any = 0) -> torch.Tensor:
        x = x.float().requires_grad_()
        torch.square(x).sum().backward()
        assert x.grad is not None
        return x.grad


def test_an_entrys_explain_answers_requests_for_explanations() -> None:
    assert _ask(Explains(), "", [1, 2], explain="True")[0] == [[2.0, 4.0]]
    body = {"instances": [[1, 2]]}
    assert _ask(Explains(), "kserve", body, explain="True")[0] == [{"explanations": [[2.0, 4.0]]}]
    assert _ask(Explains(), "kserve", body, explain="False")[0] == [{"predictions": [[2, 4]]}]
    answers, _ = _ask(Explains(), "kservev2", _v2(("x", [1, 1], "FP32", [3])), explain="True")
    assert answers[0]["outputs"][0]["data"] == [6.0]


@pytest.mark.parametrize("envelope", ["", "kserve", "kservev2"])
def test_a_model_without_explanations_says_so(envelope: str) -> None:
    answers, codes = _ask(Doubles(), envelope, {"instances": [[1]]}, explain="True")
    assert codes == [501]
    assert "no explanations" in answers[0]["message"]
