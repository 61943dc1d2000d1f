from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from archives import archive_of
from click.testing import CliRunner, Result

from interpool.archiver_ext.commands.subcommands import commands
from interpool.archiver_ext.inspect.import_chains import MOST_CHAINS, Why, why
from interpool.archiver_ext.mar.opening import open_archive
from interpool.native.errors import InterpoolError

(WHY,) = [command for command in commands if command.name == "why"]
ENTRY = "interpool-archive/entry.pkl"


def ask(archive: Path, module: str, **options: Any) -> Why:
    with open_archive(archive) as opened:
        return why(opened, module, **options)


def names(answer: Why) -> list[list[str]]:
    return [[link.importer for link in chain] + [chain[-1].module] for chain in answer.chains]


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(WHY, [*map(str, args)])


def test_all_chains_lead_from_the_pickle_to_the_module_shortest_first(packed_shop: Path) -> None:
    answer = ask(packed_shop, "shop.rates")
    assert names(answer) == [
        [ENTRY, "shop.nets.price", "shop.rates"],
        [ENTRY, "shop.nets.layers", "shop.nets", "shop.rates"],
        [ENTRY, "shop.nets.price", "shop.nets", "shop.rates"],
        [ENTRY, "shop.nets.price", "shop.nets.layers", "shop.nets", "shop.rates"],
    ]
    assert (answer.left_out, answer.counted_all) == (0, True)
    assert answer.modules["shop.rates"]["reason"] == "in the project"


def test_links_say_where_and_how(packed_shop: Path) -> None:
    chain = ask(packed_shop, "shop.rates").chains[3]
    assert [link.kind for link in chain] == ["pickle", "import", "parent", "import"]
    assert (chain[1].file, chain[1].lines) == ("shop/nets/price.py", (4,))
    assert chain[1].text == "from shop.nets import layers"
    assert (chain[2].file, chain[2].lines, chain[2].text) == ("shop/nets/layers.py", (), "")
    assert (chain[3].file, chain[3].text) == ("shop/nets/__init__.py", "from shop import rates")
    direct = ask(packed_shop, "shop.rates").imported_at
    assert [(link.file, link.lines) for link in direct] == [
        ("shop/nets/__init__.py", (1,)),
        ("shop/nets/price.py", (5, 6)),
    ]


def test_a_package_stands_for_all_its_modules(packed_shop: Path) -> None:
    answer = ask(packed_shop, "torch")
    assert set(answer.modules) == {"torch", "torch._utils", "torch.nn", "torch.nn.modules.linear"}
    assert [ENTRY, "shop.nets.layers", "torch.nn"] in names(answer)
    assert names(ask(packed_shop, "numpy")) == [[ENTRY, "shop.nets.price", "numpy.random"]]
    assert names(ask(packed_shop, "shop")) == [[ENTRY, "shop.nets.layers"], [ENTRY, "shop.nets.price"]]


def test_json_holds_the_chains(packed_shop: Path) -> None:
    value = json.loads(run(packed_shop, "annotated_types", "--json").output)
    assert set(value) == {
        "archive", "module", "modules", "imported_at", "chains", "left_out", "counted_all",
    }  # fmt: skip
    assert value["chains"][0][-1] == {
        "importer": "shop.rates",
        "module": "annotated_types",
        "kind": "import",
        "file": "shop/rates.py",
        "lines": [1],
        "text": "table = __import__('annotated_types')",
    }


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("shop.rate", "did you mean shop.rates"),
        ("torch.nn.functional", "torch.nn is extern, and what it imports itself is not recorded"),
        ("requests", "What extern modules import themselves is not recorded .*torch"),
    ],
)
def test_an_unknown_module_is_explained(packed_shop: Path, module: str, said: str) -> None:
    with pytest.raises(InterpoolError, match=said):
        ask(packed_shop, module)


def test_each_pickle_says_what_it_is(tmp_path: Path) -> None:
    pickles = [ENTRY, "interpool-archive/self-test.pkl", "models/other.pkl"]
    archive = archive_of(tmp_path / "m.ptpkg", {"m": [(name, 0) for name in pickles]})
    roots = [line for line in run(archive, "m").output.splitlines() if line.startswith(tuple(pickles))]
    assert roots == [
        f"{ENTRY} (what was packed)",
        "interpool-archive/self-test.pkl (the self-test)",
        "models/other.pkl (a pickle)",
    ]


def test_countless_chains_are_bounded_and_the_shortest_come_first(tmp_path: Path) -> None:
    # 40 modules that all import each other: more simple paths than atoms, so no program could try them all.
    every = [f"m{number}" for number in range(40)]
    graph = {name: [(user, 1) for user in every if user != name] for name in every}
    graph["m0"].append((ENTRY, 0))
    archive = archive_of(tmp_path / "m.ptpkg", {**graph, "wanted": [("m39", 1)]})
    answer = ask(archive, "wanted", most=3)
    assert [len(chain) for chain in answer.chains] == [3, 4, 4]
    assert answer.left_out == MOST_CHAINS - 3
    assert not answer.counted_all
    said = run(archive, "wanted").output
    assert f"10 chains, {MOST_CHAINS - 10} more with --all; there are more than can be counted" in said
    assert len(json.loads(run(archive, "wanted", "--all", "--json").output)["chains"]) == MOST_CHAINS


def test_sources_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    archive = archive_of(
        tmp_path / "m.ptpkg", {"m": [(ENTRY, 0)], "wanted": [("m", 1)]}, m="import wanted  # \x1b[31m[bold]"
    )
    said = run(archive, "wanted").output
    assert "m.py:1: import wanted  # \\x1b[31m[bold]" in said
    assert "\x1b" not in said


def test_the_command_needs_no_torch_and_so_is_quick(packed_shop: Path) -> None:
    code = (
        "import sys; from interpool.handler.cli import main\n"
        "try: main()\n"
        "finally: print([name for name in ('torch', 'numpy', 'model_archiver', 'ts') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "why", packed_shop, "shop.rates"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "4 chains" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
