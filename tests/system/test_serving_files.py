"""Handlers that read files, behind a real TorchServe: of their package, beside their code, of the .mar."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from local_server import TorchServe
from system.conftest import Mar

from interpool.archiver_ext.packing.pack import pack

pytestmark = pytest.mark.long

PROJECT = {
    "classifier/__init__.py": "",
    "classifier/labels.txt": "cat\ndog\n",
    "classifier/vocabulary/words.txt": "meow\nwoof\n",
    "classifier/handler.py": """
        import os
        from importlib.resources import files
        from pathlib import Path

        class Classifier:
            def initialize(self, context):
                self.labels = files("classifier").joinpath("labels.txt").read_text().split()
                vocabulary = Path(__file__).parent / "vocabulary" / "words.txt"
                self.words = vocabulary.read_text().split()
                extra = os.path.join(context.system_properties["model_dir"], "greeting.txt")
                with open(extra) as file:
                    self.greeting = file.read()

            def handle(self, data, context):
                labels = [self.labels[self.words.index(row["body"])] for row in data]
                return [{"label": each, "greeting": self.greeting, "file": __file__} for each in labels]

        def build():
            return Classifier()
    """,
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("classifier")
    for name, source in PROJECT.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
    output = root.with_suffix(".ptpkg")
    pack("classifier.handler:build", output, root=root, data=["classifier/**"])
    return output


def laid_out(server: TorchServe) -> list[Path]:
    return sorted(server.tmp.glob("interpool-data-*/*"))


def test_a_handler_reads_its_files_in_any_folder(
    server: TorchServe, mar: Mar, package: Path, tmp_path: Path
) -> None:
    greeting = tmp_path / "greeting.txt"
    greeting.write_text("hello")
    for name in ("first", "second"):
        archive = mar(server, name, package, extra_files=str(greeting))
        answer = server.register(archive)
        assert answer.status == 200, server.model_log()[-5000:]
    answers = [server.post("first", text, "text/plain") for text in (b"meow", b"woof")]
    assert [answer.json["label"] for answer in answers] == ["cat", "dog"]
    assert answers[0].json["greeting"] == "hello"
    # Both models, in both interpreters, have the same files.
    (folder,) = laid_out(server)
    assert Path(answers[0].json["file"]).is_relative_to(folder)
    assert server.post("second", b"woof", "text/plain").json["label"] == "dog"
    assert server.unregister("first").status == 200
    assert server.post("second", b"woof", "text/plain").json["label"] == "dog"
    assert server.unregister("second").status == 200
