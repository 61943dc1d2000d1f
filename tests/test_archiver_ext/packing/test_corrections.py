"""What failed attempts teach, about packages that share a namespace package with the project."""

from __future__ import annotations

from interpool.archiver_ext.packing.decide.corrections import Corrections
from interpool.archiver_ext.packing.jobs import Fault, TrialFailure, Trouble
from interpool.archiver_ext.packing.plan import Proposal
from interpool.native.archive.format import Action, Origin


def proposal(glob: str, action: Action) -> Proposal:
    return Proposal(glob, action, "why", origin=Origin.RULES)


def test_what_no_archive_can_hold_takes_its_own_package_to_the_server_and_not_its_neighbours() -> None:
    corrections = Corrections([])
    decided = [proposal("acme.basics.**", "intern"), proposal("acme.core.**", "intern")]
    assert corrections.after_refusal({"acme.core.fast": Fault("is compiled code")}, decided)
    assert [*corrections.decisions] == ["acme.core.**"]
    assert corrections.made == ["acme.core is taken from the server: acme.core.fast is compiled code"]


def test_a_trial_blames_the_part_of_a_namespace_package_that_the_rules_decided_about() -> None:
    corrections = Corrections([])
    decided = [proposal("acme.core.**", "intern"), proposal("acme.plots.**", "mock")]
    failures = [
        TrialFailure("load", Trouble.RAISED, "E: x", modules=["acme.core.layers", "acme.vision.model"]),
        TrialFailure("load", Trouble.MOCKED, "E: x", modules=["acme.vision.model"], mocked="acme.plots.draw"),
    ]
    assert corrections.after_trial(failures, decided)
    assert [*corrections.decisions] == ["acme.core.**"]
    assert corrections.needed == {"acme.plots": "the archive needs acme.plots.draw to load"}
