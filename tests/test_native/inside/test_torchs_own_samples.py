"""torch's own samples of what it does: lean interpreters answer as those do that import all of torch."""

from __future__ import annotations

import pytest
from asked_again import asked_again, most_touching

pytestmark = pytest.mark.long

# Guests (tests/test_native/support) with how many entries they have at least, in any release. Their number of
# samples is in docs/architecture.md.
LEAN = {
    "operators_guest:answers": 550,
    "operators_guest:first_and_second": 400,
    "modules_guest:answers": 100,
    "scripts_guest:functions": 200,
    "scripts_guest:compiled_operators": 900,
    "scripts_guest:compiled_modules": 200,
}
WITH_THE_COMPILER = {"operators_guest:forward": 300, "functions_guest:differentiated": 10}


def test_a_few_of_torchs_own_samples_have_the_same_answers_while_imports_are_late() -> None:
    for guest, found in asked_again([*LEAN, *WITH_THE_COMPILER], samples=1, stride=131).items():
        assert found.entries > 0, guest
        assert found.differing == []
        assert len(found.touching) <= most_touching(found.entries), found.touching


@pytest.mark.parametrize(("guest", "least"), [*LEAN.items(), *WITH_THE_COMPILER.items()])
def test_torchs_own_samples_have_the_same_answers_while_imports_are_late(guest: str, least: int) -> None:
    found = asked_again([guest], samples=3)[guest]
    assert found.entries > least
    assert found.differing == []
    assert len(found.touching) <= most_touching(found.entries), found.touching
