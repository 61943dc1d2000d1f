"""A server that asks for signatures: what is refused is refused before any of it runs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from local_server import TorchServe, torchserve
from proving import TORCH, build_archive, make_keys, replace_bytes
from system.conftest import HANDLER, HERE, Mar, wait_for_log
from waiting import wait_for

from interpool.archiver_ext.verify.signing import sign_archive

RIGHT = torch.tensor([3.0, 12.0])  # what the model answers to three ones
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Private and public keys, by name; the server knows two of the three."""
    directory = tmp_path_factory.mktemp("keys")
    curves = {"first": "prime256v1", "second": "secp384r1", "stranger": "prime256v1"}
    return {name: make_keys(directory, name, curve) for name, curve in curves.items()}


@pytest.fixture(scope="module")
def server(keys: dict[str, tuple[Path, Path]]) -> Iterator[TorchServe]:
    known = f"{keys['first'][1]}:{keys['second'][1]}"
    with TorchServe(environment={"INTERPOOL_SIGNATURE_KEYS": known}) as running:
        yield running


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """Exists once something in an archive has run."""
    return tmp_path / "canary"


@pytest.fixture
def build(tmp_path: Path, canary: Path, keys: dict[str, tuple[Path, Path]]) -> Build:
    """Makes ``NAME.ptpkg``, signed by a key unless that is ""."""

    def make(name: str, key: str = "first", **options: object) -> Path:
        archive = build_archive(tmp_path / f"{name}.ptpkg", canary, **options)  # type: ignore[arg-type]
        if key:
            sign_archive(archive, keys[key][0])
        return archive

    return make


def refusal(server: TorchServe, mar: str, name: str) -> str:
    """Register what must be refused; gives the reason in the model log."""
    answer = server.register(mar, initial_workers=2)
    assert answer.status == 400, f"{answer.text}\n{server.model_log()[-3000:]}"
    assert f"Failed to start workers for model {name}" in answer.text
    assert server.request("GET", f"{server.management}/models/{name}").status == 404
    said = f"Model '{name}' could not be loaded: "
    wait_for_log(server, said)
    wait_for(lambda: server.shims() == [], "its workers' end", pause=0.1)
    line = next(line for line in server.model_log().splitlines() if said in line)
    return line.partition(said)[2]


def add_to_mar(server: TorchServe, mar: str, files: dict[str, str], **model: str) -> None:
    """What an attacker with the .mar can do: more files, another manifest."""
    path = server.store / mar
    old = path.with_suffix(".old")
    path.rename(old)
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(path, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            if info.filename == "MAR-INF/MANIFEST.json":
                manifest = json.loads(content)
                manifest["model"].update(model)
                content = json.dumps(manifest).encode()
            if info.filename not in files:
                target.writestr(info, content)
        for name, text in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o755 << 16
            target.writestr(info, text)
    old.unlink()


def code_that_sings(canary: Path) -> dict[str, str]:
    """Files that TorchServe, or Python at its start, would import or run from a model's directory."""
    sing = f"open({str(canary)!r}, 'a').write(__name__)\n"
    early = f"import posix\nposix.close(posix.open({str(canary)!r}, posix.O_CREAT))\n"
    return {
        "interpool_handler.py": sing + HANDLER.read_text(),
        "sitecustomize.py": sing,
        "usercustomize.py": sing,
        "fcntl.py": sing,
        "argparse.py": sing,
        "json/__init__.py": sing,
        "encodings/__init__.py": early,
        "venv/bin/python": f"#!/bin/sh\ntouch {canary}\n",
        # As if pip had installed it for the model.
        "nowhere/__init__.py": sing,
        "nowhere_at_all-1.2.dist-info/METADATA": "Name: nowhere-at-all\nVersion: 1.2\n",
        "requirements.txt": "nowhere-at-all",
    }


# ---- what is served --------------------------------------------------------------------------


def test_a_model_signed_by_one_of_the_keys_is_served_and_its_other_files_do_not_run(
    server: TorchServe, mar: Mar, build: Build, canary: Path
) -> None:
    """Not even those that TorchServe's own worker would import when it starts."""
    package = mar(server, "good", build("good"))
    add_to_mar(server, package, code_that_sings(canary))
    assert server.register(package, initial_workers=2).status == 200, server.model_log()[-3000:]
    assert server.predict("good", [1.0, 1, 1]).json == RIGHT.tolist()
    assert set(canary.read_text().split()) == {"source"}
    wait_for_log(server, "good.ptpkg is as it was made: structure, manifest, digests, signature by key")
    assert server.unregister("good").status == 200


@pytest.mark.long
def test_interpreters_that_load_at_once_check_once(server: TorchServe, mar: Mar, build: Build) -> None:
    archive = mar(server, "once", build("once", expected=RIGHT), config="interpool: {self_test: true}\n")
    assert server.register(archive, initial_workers=4).status == 200
    for _ in range(8):
        assert server.predict("once", [1.0, 1, 1]).status == 200
    assert server.model_log().count("once.ptpkg is as it was made") == 1
    assert server.model_log().count("once.ptpkg answers its example inputs as when it was made") == 1
    assert server.unregister("once").status == 200


# ---- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("unsigned", "unsigned"),
        ("stranger", "wrong-key"),
        ("source", "digest"),
        ("extern", "extern-missing"),
    ],
)
def test_a_model_that_cannot_prove_itself_runs_nothing(
    server: TorchServe, mar: Mar, build: Build, canary: Path, what: str, rule: str
) -> None:
    name = f"bad-{what}"
    if what in ("unsigned", "stranger"):
        archive = build(name, "" if what == "unsigned" else what)
    elif what == "extern":
        missing = {"module": "nowhere", "distribution": "nowhere-at-all", "version": "1.2"}
        archive = build(name, externs=[TORCH, missing])
    else:
        archive = build(name)
    if what == "source":
        replace_bytes(archive, "proving_model.py", b"self.weight.T * 1.0", b"self.weight.T * 2.0")
    package = mar(server, name, archive)
    add_to_mar(server, package, code_that_sings(canary), requirementsFile="requirements.txt")
    reason = refusal(server, package, name)
    assert f"[{rule}]" in reason
    assert archive.name in reason
    assert not canary.exists()


@pytest.mark.long
def test_a_model_whose_answers_have_changed_is_refused_when_it_is_asked_to_test_itself(
    server: TorchServe, mar: Mar, build: Build
) -> None:
    archive = build("wrong", expected=RIGHT + 1)
    package = mar(server, "wrong", archive, config="interpool: {self_test: true}\n")
    reason = refusal(server, package, "wrong")
    assert "it answers its own example inputs differently than when it was made" in reason
    wait_for_log(server, "Greatest absolute difference: 1.0")


@pytest.mark.parametrize(
    ("config", "handler"),
    [
        ("useVenv: true\n", ""),
        ("parallelType: tp\ntorchrun: {nproc-per-node: 1}\n", ""),
        ("", "./:anything"),  # TorchServe puts what stands before the colon at the front of PYTHONPATH
    ],
    ids=["venv", "torchrun", "handler"],
)
def test_no_program_and_no_directory_of_the_models_comes_into_play(
    server: TorchServe, mar: Mar, build: Build, canary: Path, config: str, handler: str
) -> None:
    package = mar(server, "m", build("m", ""), config=config)
    add_to_mar(server, package, code_that_sings(canary), **({"handler": handler} if handler else {}))
    assert server.register(package).status in (400, 500)
    assert not canary.exists()
    wait_for(lambda: server.shims() == [], "its worker's end", pause=0.1)
    server.unregister("m")  # TorchServe keeps one that wants an environment by itself


def test_a_stock_archive_is_refused_and_its_worker_does_not_start(
    server: TorchServe, mar: Mar, tmp_path: Path, canary: Path
) -> None:
    handler = tmp_path / "stock_handler.py"
    handler.write_text(f"open({str(canary)!r}, 'w')\n{(HERE / 'stock_handler.py').read_text()}")
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"none")
    package = mar(server, "stock", weights, handler=handler)
    add_to_mar(server, package, {"sitecustomize.py": f"open({str(canary)!r}, 'w')\n"})
    assert server.register(package).status == 500
    wait_for_log(server, "this model is refused: its archive is not hermetic")
    assert server.request("GET", f"{server.management}/models/stock").status == 404
    wait_for(lambda: server.shims() == [], "its worker's end", pause=0.1)
    assert not canary.exists()


@pytest.mark.long
def test_a_model_signed_by_the_other_key_registers_after_all_that(
    server: TorchServe, mar: Mar, build: Build
) -> None:
    assert server.request("GET", f"{server.management}/models").json["models"] == []
    assert server.register(mar(server, "after", build("after", "second"))).status == 200
    assert server.predict("after", [1.0, 1, 1]).json == RIGHT.tolist()
    assert server.unregister("after").status == 200


# ---- servers that are set up otherwise -------------------------------------------------------


@pytest.mark.long
def test_stock_archives_are_served_beside_signed_ones_if_the_operator_says_so(
    mar: Mar, build: Build, tmp_path: Path, keys: dict[str, tuple[Path, Path]]
) -> None:
    environment = {
        "INTERPOOL_SIGNATURE_KEYS": str(keys["first"][1]),
        "INTERPOOL_STOCK_ARCHIVES": "allow",
    }
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"none")
    with torchserve(environment=environment) as server:
        package = mar(server, "stock", weights, handler=HERE / "stock_handler.py")
        assert server.register(package).status == 200, server.model_log()[-3000:]
        assert server.predict("stock", {}).json["model"] == "stock"
        assert "-I" not in server.predict("stock", {}).json["argv"]
        assert server.unregister("stock").status == 200
        assert "[unsigned]" in refusal(server, mar(server, "m", build("m", "")), "m")


@pytest.mark.long
def test_a_torchserve_without_the_overlay_checks_signatures_as_well(
    mar: Mar, build: Build, canary: Path, keys: dict[str, tuple[Path, Path]]
) -> None:
    environment = {"INTERPOOL_SIGNATURE_KEYS": str(keys["first"][1])}
    with torchserve(overlay=False, environment=environment) as server:
        assert server.register(mar(server, "bad", build("bad", ""))).status == 500
        wait_for_log(server, "bad.ptpkg is not signed")
        assert not canary.exists()
        assert server.register(mar(server, "good", build("good"))).status == 200, server.model_log()[-3000:]
        assert server.predict("good", [1.0, 1, 1]).json == RIGHT.tolist()
