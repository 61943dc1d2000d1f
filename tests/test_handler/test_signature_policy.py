"""What an archive must prove before it is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from proving import build_archive, make_keys

from interpool.native import InterpreterManager
from interpool.native.errors import SignatureError


def test_a_package_that_was_admitted_without_keys_is_checked_again_with_keys(tmp_path: Path) -> None:
    archive = build_archive(tmp_path / "m.ptpkg", tmp_path / "canary")
    _, public = make_keys(tmp_path)
    with InterpreterManager(1) as manager, manager.acquire_session() as session:
        admit = session.global_("signature_policy_work", "admit")
        admit(str(archive))
        with pytest.raises(SignatureError, match=r"is not signed, .* \[unsigned\]"):
            admit(str(archive), str(public))
        with pytest.raises(SignatureError, match=r"\[unsigned\]"):  # a refusal is not remembered as done
            admit(str(archive), str(public))
    assert not (tmp_path / "canary").exists()
