from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interpool.archiver_ext.mar.opening import open_archive

if TYPE_CHECKING:
    from pathlib import Path


ENTRY = ("interpool-archive/entry.pkl", 0)


def importers(archive: Path) -> dict[str, list[tuple[str, int]]]:
    with open_archive(archive) as opened:
        return {
            name: [(each["module"], each["line"]) for each in done["imported_by"]]
            for name, done in opened.manifest["modules"].items()
        }


@pytest.mark.long
def test_every_module_has_all_its_importers_with_their_lines(packed_shop: Path) -> None:
    found = importers(packed_shop)
    own = {name: users for name, users in found.items() if name.partition(".")[0] == "shop"}
    assert own == {
        "shop": [("shop.nets", 0), ("shop.rates", 0)],
        "shop.nets": [("shop.nets.layers", 0), ("shop.nets.price", 0)],
        "shop.nets.layers": [ENTRY, ("shop.nets.price", 4)],
        "shop.nets.price": [ENTRY],
        "shop.rates": [("shop.nets", 1), ("shop.nets.price", 5), ("shop.nets.price", 6)],
    }
    assert found["torch"] == [ENTRY, ("shop.nets.price", 2)]
    assert found["torch.nn"] == [("shop.nets.layers", 1), ("shop.nets.price", 3)]
    assert found["torch.nn.modules.linear"] == [ENTRY]
    assert found["annotated_types"] == [("shop.rates", 1)]  # through __import__
    assert found["collections.abc"] == [("annotated_types", 3)]
