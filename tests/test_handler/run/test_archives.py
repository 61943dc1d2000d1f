"""Which archives are served without TorchServe, before anything of them runs."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from extracted import extracted
from model_archiver.model_archiver_config import ModelArchiverConfig
from proving import build_archive
from stock_archiver import wrap

from interpool.handler.errors import ServeError
from interpool.handler.run.archives import Options, opened


@pytest.fixture
def ordinary(tmp_path: Path) -> Path:
    handler = tmp_path / "handler.py"
    handler.write_text("def handle(data, context):\n    return data\n")
    wrap(
        ModelArchiverConfig(
            model_name="ordinary", version="1.0", handler=str(handler), export_path=str(tmp_path), force=True
        )
    )
    return tmp_path / "ordinary.mar"


@pytest.mark.parametrize("asks", ["INTERPOOL_SIGNATURE_KEYS=/keys/a.pem", "INTERPOOL_STOCK_ARCHIVES=refuse"])
def test_an_ordinary_archive_is_refused_if_the_operator_asks_for_signatures_or_says_so(
    ordinary: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    name, _, value = asks.partition("=")
    monkeypatch.setenv(name, value)
    said = rf"ordinary\.mar cannot be served: this model is refused: .*{name}.*\[stock-archive\]"
    with pytest.raises(ServeError, match=said), opened("ordinary", ordinary, Options()):
        pass


def test_an_ordinary_archive_is_served_beside_signed_ones_if_the_operator_allows_it(
    ordinary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_SIGNATURE_KEYS", "/keys/a.pem")
    monkeypatch.setenv("INTERPOOL_STOCK_ARCHIVES", "allow")
    with opened("ordinary", ordinary, Options()) as archive:
        assert archive.name == "ordinary"


def test_a_hermetic_archive_is_left_to_the_load_which_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_SIGNATURE_KEYS", "/keys/a.pem")
    package = build_archive(tmp_path / "unsigned.ptpkg", tmp_path / "canary")
    with opened("unsigned", package, Options()) as archive:
        assert archive.name == "unsigned"


def test_no_delay_of_batches_is_a_delay_that_an_option_may_ask_for(ordinary: Path) -> None:
    for delay_ms, seconds in ((None, 0.1), (0, 0.0), (5, 0.005)):
        with opened("ordinary", ordinary, Options(batch_delay_ms=delay_ms)) as archive:
            assert archive.settings.batch_delay_s == seconds


def test_a_size_of_batches_that_torchserve_cannot_have_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"batchSize: {1 << 31}")
    extracted(tmp_path, handler="handler.py", configFile="config.yaml")
    with opened("model", tmp_path, Options()) as archive:
        assert archive.settings.batch_size == 1


def _damaged(directory: Path, damage: str) -> Path:
    source = directory / "handler.py"
    source.write_text("# many words\n" * 1000)
    if damage == "cut":
        path = directory / "model.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(source, "handler.py")
        path.write_bytes(path.read_bytes()[:-30])
        return path
    path = directory / "model.mar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(source, "handler.py")
    data = bytearray(path.read_bytes())
    entry, content = data.index(b"PK\1\2"), 30 + len("handler.py")
    if damage == "altered":
        data[content : content + 8] = b"\xff" * 8
    elif damage == "encrypted":
        data[6] |= 1
        data[entry + 8] |= 1
    elif damage == "of an unknown compression":
        data[8] = data[entry + 10] = 97
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("damage", ["cut", "altered", "encrypted", "of an unknown compression"])
def test_an_archive_that_cannot_be_read_is_refused(tmp_path: Path, damage: str) -> None:
    path = _damaged(tmp_path, damage)
    with (
        pytest.raises(ServeError, match=f"{path.name} is not an archive of TorchServe's: .+"),
        opened("model", path, Options()),
    ):
        pass
