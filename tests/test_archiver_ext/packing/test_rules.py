from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

from interpool.archiver_ext.packing.decide.rules import Rules, Usage, Verdict
from interpool.archiver_ext.packing.plan import Proposal
from interpool.native.archive.format import Origin


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path)


@pytest.mark.parametrize(
    ("module", "action", "origin", "reason"),
    [
        ("sys", "extern", Origin.STANDARD_LIBRARY, "standard library"),
        ("io", "extern", Origin.STANDARD_LIBRARY, "standard library"),
        ("os.path", "extern", Origin.STANDARD_LIBRARY, "standard library"),
        ("_thread", "extern", Origin.STANDARD_LIBRARY, "standard library"),
        ("torch.nn.functional", "extern", Origin.SERVER, "every server has it"),
        ("numpy._core.multiarray", "extern", Origin.SERVER, "every server has it"),
        ("interpool.native", "extern", Origin.SERVER, "part of the server"),
        ("__main__", "extern", Origin.SERVER, "the program that runs the model"),
        ("yaml", "extern", Origin.RULES, "ships compiled code"),
        ("transformers.models.bert", "extern", Origin.RULES, "is big"),
        ("certifi", "extern", Origin.RULES, "ships data beside its code"),
        ("typing_extensions", "extern", Origin.SERVER, "torch needs it"),
        ("annotated_types", "intern", Origin.RULES, "small and pure Python"),
    ],
)
def test_each_kind_of_module_has_its_rule(
    rules: Rules, module: str, action: str, origin: Origin, reason: str
) -> None:
    verdict = rules.verdict(module)
    assert (verdict.action, verdict.origin) == (action, origin)
    assert reason in verdict.reason


def test_a_package_that_one_from_the_server_needs_comes_from_the_server_too(tmp_path: Path) -> None:
    """Both share its classes: a copy in the archive would have others."""
    pydantic = Usage(ran=frozenset({"pydantic", "annotated_types"}))
    needed = Rules(tmp_path, usage=pydantic).verdict("annotated_types")
    assert (needed.action, needed.origin, needed.glob) == ("extern", Origin.RULES, "annotated_types.**")
    assert re.fullmatch(r"pydantic \S+ is taken from the server and needs it: .*", needed.reason)
    alone = Usage(ran=frozenset({"annotated_types"}))
    assert Rules(tmp_path, usage=alone).verdict("annotated_types").action == "intern"
    by_hand = {"intern": ["annotated_types.**"]}
    assert Rules(tmp_path, by_hand, usage=pydantic).verdict("annotated_types").action == "intern"
    without = {"mock": ["pydantic.**"]}
    assert Rules(tmp_path, without, usage=pydantic).verdict("annotated_types").action == "intern"


def test_packages_installed_below_the_root_are_not_the_projects() -> None:
    site_packages = Path(__import__("yaml").__file__).parents[1]
    rules = Rules(site_packages.parent.resolve())
    assert rules.verdict("yaml").action == "extern"


def test_python_may_lie_below_the_root_and_is_not_the_projects() -> None:
    """As after ``conda create --prefix ./env``."""
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    rules = Rules(standard.parents[1])
    assert rules.verdict("json") == Verdict("extern", "standard library", Origin.STANDARD_LIBRARY)
    assert not rules.trees.owns(standard / "json" / "decoder.py")
    assert rules.trees.owns(standard.parents[1] / "export.py")
    assert Rules(standard).trees.owns(standard / "export.py"), "unless the project lies in there itself"


def test_first_of_deny_mock_extern_intern_wins(tmp_path: Path) -> None:
    rules = Rules(
        tmp_path,
        {"intern": ["**"], "extern": ["a.**", "b.**"], "mock": ["a.b.**", "a.c"], "deny": ["a.b.c"]},
    )
    assert rules.verdict("x") == Verdict("intern", "--intern **", Origin.USER)
    assert rules.verdict("a.d") == Verdict("extern", "--extern a.**", Origin.USER)
    assert rules.verdict("a.b.d") == Verdict("mock", "--mock a.b.**", Origin.USER)
    assert rules.verdict("a.b.c") == Verdict("deny", "--deny a.b.c", Origin.USER)


def test_rules_list_unused_decisions_except_denials(tmp_path: Path) -> None:
    globs = {"extern": ["yaml.**", "yalm.**"], "deny": ["pandas.**"]}
    rules = Rules(tmp_path, globs, (Proposal("einop.**", "intern", "why"),))
    unused = rules.unused(["yaml.nodes", "einops"])
    assert [each.where for each in unused] == ["--extern yalm.**", "the plan's [intern] einop.**"]
    assert [each.origin for each in unused] == [Origin.USER, Origin.PLAN]
