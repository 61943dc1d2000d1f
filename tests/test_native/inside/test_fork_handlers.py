"""What a module does around forks, it does around its own interpreter's only."""

from __future__ import annotations

from compile import build, python_headers
from interpool_testing import Code, every_interpreter
from paths import EXTENSIONS

from interpool.native import InterpreterManager

SOURCE = """
def register_handlers():
    forks.register_handlers()

def fork_once():
    return forks.fork_once()

def so_far():
    return forks.so_far()
"""


def test_handlers_run_in_forks_of_their_own_interpreters_only(manager: InterpreterManager) -> None:
    module = build(EXTENSIONS / "forks.c", "forks.so", with_torch=False, options=(python_headers(),))
    with every_interpreter(manager, 2) as sessions:
        one, other = (Code(session, SOURCE) for session in sessions)
        for code in (one, other):
            code.import_built(module)
            code.call("register_handlers")
        before = one.call("so_far"), other.call("so_far")
        assert one.call("fork_once") == (before[0] + 1, 1)
        assert one.call("fork_once") == (before[0] + 2, 1)
        assert other.call("so_far") == before[1]
        assert other.call("fork_once") == (before[1] + 1, 1)
