"""What is left of a traceback: the user's frames, and the one that raised."""

from __future__ import annotations

import json
import re

import pytest
import torch

from interpool.archiver_ext.tracebacks import readable_traceback


def files(text: str) -> list[str]:
    return [found.rpartition("/")[2] for found in re.findall(r'File "(.*?)"', text)]


def test_frames_between_the_users_and_the_error_are_left_out() -> None:
    def hook(pairs: object) -> object:
        return json.loads("{")

    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads('{"a": {}}', object_hook=hook)
    said = readable_traceback(caught.value)
    assert files(said) == ["test_tracebacks.py", "test_tracebacks.py", "decoder.py"]
    assert said.rstrip().splitlines()[-1].startswith("json.decoder.JSONDecodeError")


def test_a_deep_model_shows_its_own_lines_only() -> None:
    class Fails(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("on purpose")

    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Sequential(Fails())))
    with pytest.raises(ValueError, match="on purpose") as caught:
        model(torch.ones(1))
    assert files(readable_traceback(caught.value)) == ["test_tracebacks.py"] * 2


def test_causes_are_cut_alike() -> None:
    try:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("a configuration") from error
    except RuntimeError as error:
        said = readable_traceback(error)
    assert files(said) == ["test_tracebacks.py", "decoder.py", "test_tracebacks.py"]
    assert "direct cause" in said
