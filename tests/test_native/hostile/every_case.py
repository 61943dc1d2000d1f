"""All hostile archives."""

from __future__ import annotations

from test_native.hostile.cases import Case
from test_native.hostile.manifest_cases import MANIFEST_CASES
from test_native.hostile.pickle_cases import PICKLES
from test_native.hostile.structure_cases import STRUCTURE

CASES: list[Case] = [*STRUCTURE, *MANIFEST_CASES, *PICKLES]
