"""What several commands print: a request that works, with the server's settings for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from archives import module_records, write_archive
from click.testing import CliRunner

from interpool.handler.cli import main
from interpool.native.torchserve import MOST_REQUEST_BYTES, MOST_RESPONSE_BYTES

if TYPE_CHECKING:
    from pathlib import Path


def heading(path: Path, body_bytes: int, **record: Any) -> str:
    """The line above the request that ``interpool inspect`` prints of such an archive."""
    request = {
        "package": "interpool-archive",
        "resource": "request.txt",
        "content_type": "text/plain",
        "part": None,
        **record,
    }
    body = {"interpool-archive/request.txt": "x" * body_bytes}
    write_archive(path, module_records([], {}), body, request=request)
    result = CliRunner().invoke(main, ["inspect", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    (at,) = (index for index, line in enumerate(lines) if line.startswith("a request that works"))
    assert "curl -sS -X POST" in lines[at + 1]
    return lines[at]


@pytest.mark.parametrize("record", [{}, {"answer_bytes": MOST_RESPONSE_BYTES}])
def test_a_request_that_every_server_takes_needs_nothing_more(tmp_path: Path, record: Any) -> None:
    assert heading(tmp_path / "m.ptpkg", 10, **record) == (
        "a request that works, once it is registered as m:"
    )


def test_a_name_with_dots_is_the_models(tmp_path: Path) -> None:
    assert heading(tmp_path / "mood-1.0.ptpkg", 10).endswith("registered as mood-1.0:")


def test_settings_that_a_request_and_its_answer_need_are_said_with_their_sizes(tmp_path: Path) -> None:
    assert heading(tmp_path / "m.ptpkg", MOST_REQUEST_BYTES + 1, answer_bytes=7_000_000) == (
        "a request that works, once it is registered as m, and max_request_size in config.properties is at "
        "least 6,553,501 for this request (it is 6,553,500 unless set), and max_response_size in "
        "config.properties is at least 7,000,000 for its answer (it is 6,553,500 unless set):"
    )


def test_curl_asks_a_server_at_a_unix_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    addresses = ("unix:/run/inference", "unix:/run/management")
    monkeypatch.setattr("interpool.handler.cli.running_addresses", lambda: addresses)
    request = {"package": "interpool-archive", "resource": "request.txt", "content_type": "text/plain"}
    body = {"interpool-archive/request.txt": "x"}
    write_archive(tmp_path / "m.ptpkg", module_records([], {}), body, request={**request, "part": None})
    arguments = ["archive", str(tmp_path / "m.ptpkg"), "--export-path", str(tmp_path)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert 'curl --unix-socket /run/management -X POST "http://localhost/models?url=m.mar' in result.output
    assert "curl -sS --unix-socket /run/inference -X POST http://localhost/predictions/m" in result.output
