"""docs/errors.md has each of interpool's errors, in the code's tree, with the code's statuses."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from paths import ROOT

from interpool.archiver_ext.errors import PackError
from interpool.handler import errors as serving
from interpool.native import errors as native

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
BASE = "InterpoolError"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)


@cache
def parents_in_the_code() -> dict[str, str]:
    """Each error's parent, by the sources: importing them all would start what belongs to a server."""
    parents = {}
    for package in ("native", "archiver_ext", "handler"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name):
                    parents[node.name] = node.bases[0].id

    def is_ours(name: str) -> bool:
        return name == BASE or (name in parents and is_ours(parents[name]))

    return {name: parent for name, parent in parents.items() if is_ours(name) and name != BASE}


def parents_on_the_page() -> dict[str, str]:
    """Each error's parent, by the tree that the page draws."""
    tree = PAGE.partition("```text\n")[2].partition("```")[0]
    parents, above = {}, [BASE]
    for line in tree.splitlines()[1:]:
        name = line.lstrip("│├└─ ")
        depth = (len(line) - len(name)) // 4
        above[depth:] = [name]
        parents[name] = above[depth - 1]
    return parents


def test_the_tree_is_that_of_the_code() -> None:
    assert parents_on_the_page() == parents_in_the_code()


def test_each_error_has_one_row_that_says_when_and_what_to_do() -> None:
    section = PAGE.partition("## In a program")[2].partition("## As HTTP statuses")[0]
    assert sorted(name for name, *_ in ROW.findall(section)) == sorted([BASE, *parents_in_the_code()])


@pytest.mark.parametrize(
    ("name", "registration", "request_"), ROW.findall(PAGE.partition("## As HTTP statuses")[2])
)
def test_the_statuses_are_those_of_the_code(name: str, registration: str, request_: str) -> None:
    kind = getattr(serving, name, None) or getattr(native, name)
    error = kind.__new__(kind)
    assert registration == str(serving.load_failure_code(error))
    if isinstance(error, native.CallTimeoutError):
        status = serving.CALL_LIMIT_CODE
    elif "made the pool load" in request_ or "likewise" in request_:
        status = serving.load_failure_code(error)
    else:
        status = serving.predict_failure_code(error)
    assert request_.startswith(str(status))


def test_memory_and_other_errors_have_the_statuses_of_the_page() -> None:
    assert "| `MemoryError`, `torch.OutOfMemoryError` | 507 | 507 |" in PAGE
    assert serving.load_failure_code(MemoryError()) == serving.predict_failure_code(MemoryError()) == 507
    assert "| any other | 500 | 503; 500, if the request made the pool load the model |" in PAGE
    for error in (ValueError(), PackError("")):
        assert serving.load_failure_code(error) == 500
        assert serving.predict_failure_code(error) == 503
