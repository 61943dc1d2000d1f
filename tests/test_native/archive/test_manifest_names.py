"""Names in a TorchServe manifest lead nowhere but into the model's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from interpool.native.archive.manifest_names import NAMES, require_inside
from interpool.native.errors import StructureError


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("name", ["..", "a/../../x", "/etc/x", "x\0.yaml", 7, ["x"]])
def test_a_name_that_leads_out_is_refused_by_its_text(key: str, name: object) -> None:
    with pytest.raises(StructureError) as caught:
        require_inside({key: name}, "m.mar: MANIFEST.json")
    assert caught.value.rule == "mar-path"
    assert caught.value.message.startswith(f"m.mar: MANIFEST.json: its {key} {name!r} ")


@pytest.mark.parametrize("name", ["a/../x", "..x", "x:../y", None, ""])
def test_a_name_of_a_file_that_may_be_there_is_taken(name: object) -> None:
    require_inside({"handler": name, "modelName": "../x"}, "m.mar")


def test_links_are_followed(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    (tmp_path / "model2").mkdir()
    (model / "out").symlink_to(tmp_path / "model2")  # whose name begins with the model's
    (model / "in").symlink_to("deep")
    (model / "loop").symlink_to("loop")
    require_inside({"configFile": "in/x.yaml", "modelFile": "not/there.py", "handler": "loop"}, "m", model)
    for name in ("out/x.yaml", "in/../out/x.yaml", "out"):
        with pytest.raises(StructureError, match="is a link that leads out"):
            require_inside({"configFile": name}, "m", model)
