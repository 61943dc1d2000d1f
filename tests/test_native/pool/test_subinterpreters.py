"""A pool in a subinterpreter of CPython's is refused at once, and the main interpreter's stays as it was."""

from __future__ import annotations

from interpool_testing import run_program


def test_a_pool_in_a_subinterpreter_is_refused_with_what_to_do() -> None:
    done = run_program(
        """
import importlib, sys

import interpool

name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
interpreters = importlib.import_module(name)
run = getattr(interpreters, "exec", None) or interpreters.run_string
run(interpreters.create(), '''
import interpool
try:
    interpool.InterpreterManager
except interpool.InterpoolError as error:
    print(type(error).__name__, error, flush=True)
''')
with interpool.InterpreterManager(1) as manager, manager.acquire_session() as session:
    print(session.global_("math", "sqrt")(4).to_value())
"""
    )
    refusal, _, answer = done.stdout.partition("\n")
    assert refusal.startswith("SessionError interpool works in a program's main interpreter only"), done
    assert "Open the pool in the main interpreter" in refusal
    assert answer == "2.0\n"
