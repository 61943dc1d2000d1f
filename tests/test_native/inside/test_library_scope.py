"""No private copy's names are ever in the global scope: they are every interpreter's names."""

from __future__ import annotations

import pytest
from interpool_testing import printed

pytestmark = pytest.mark.long


def test_a_model_may_ask_for_global_names_and_the_next_interpreter_starts() -> None:
    said = printed("""
        from interpool import InterpreterManager
        from interpool_testing import Code

        SOURCE = '''
        import os, sys

        def load():
            sys.setdlopenflags(os.RTLD_GLOBAL | os.RTLD_NOW)
            import numpy, pyexpat
            return sys.getdlopenflags() == os.RTLD_GLOBAL | os.RTLD_NOW
        '''
        for _ in range(2):
            with InterpreterManager(1) as manager, manager.acquire_session() as session:
                print(Code(session, SOURCE).call("load"))
        """)
    assert said == "True\nTrue\n"


def test_a_host_whose_torch_is_in_the_global_scope_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_USE_RTLD_GLOBAL", "1")
    said = printed("""
        import torch
        from interpool import InterpreterManager
        from interpool.native.errors import InterpreterStartError

        try:
            InterpreterManager(1)
        except InterpreterStartError as error:
            print(error)
        """)
    assert said.startswith("this program's own libtorch_python is in its global scope")
    assert "TORCH_USE_RTLD_GLOBAL" in said
