"""Files of others that are read within bounds, before anything is built of what they say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from extracted import extracted
from interpool_testing import run_program

from interpool.native.archive.bounded import LARGEST, OutOfBounds, read_json, read_yaml


def _bomb(levels: int, width: int = 9) -> str:
    """Nested aliases, with which ``width ** levels`` values take a few lines."""
    each = (f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels))
    return "\n".join(["a0: &a0 [x]", *each])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_bomb(9), "stands for more than"),
        (_bomb(9).replace("[", "{<<: [").replace("]", "]}"), "stands for more than"),
        ("[" * 1000 + "]" * 1000, "deeper than"),
        ("a: &a " + "[" * 60 + "1" + "]" * 60 + "\nb: [[[[[[*a]]]]]]", "deeper than"),
        ("a: &a [*a]", "alias *a"),
        ("a: " + "x" * LARGEST, "has more than"),
        ("a: {", "is not YAML"),
        ("? !!python/object:os.system x", "is not YAML"),
        ("x: !!bool maybe", "is not YAML (KeyError('maybe'))"),
    ],
    ids=[
        *("bomb", "merged", "deep", "deep by alias", "recursive", "large", "damaged", "tagged", "no bool"),
    ],
)
def test_yaml_that_would_become_too_much_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(OutOfBounds, match=re.escape(words)):
        read_yaml(file)


@pytest.mark.parametrize("text", ["", "a: 1", "x: &x {a: 1}\ny: {<<: *x, b: 2}\nz: [*x, *x]\n", _bomb(4)])
def test_yaml_within_bounds_is_what_it_says(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    assert read_yaml(file) == yaml.safe_load(text)


def test_json_is_bounded_too(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text('{"a": [1]}')
    assert read_json(file) == {"a": [1]}
    for text, words in (("[" * 100_000, "too deep"), (" " * (LARGEST + 1), "has more than")):
        file.write_text(text)
        with pytest.raises(OutOfBounds, match=words):
            read_json(file)


def test_a_reader_does_not_wait_for_a_path_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OutOfBounds, match="no regular file"):
            read_yaml(path)


def test_a_models_configuration_that_is_a_bomb_costs_no_memory_and_says_why(tmp_path: Path) -> None:
    (extracted(tmp_path, configFile="c.yaml") / "c.yaml").write_text(_bomb(10) + "\ninterpool: *a9")
    done = run_program(f"""
        import resource
        from interpool.handler.config import ModelSettings, SettingsError
        resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
        try:
            ModelSettings.of_model({str(tmp_path)!r})
        except SettingsError as error:
            print(len(str(error)) < 500, "stands for more than" in str(error))
        """)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True True\n"
