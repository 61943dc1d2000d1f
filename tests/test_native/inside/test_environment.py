"""Environment variables of interpreters: what processes have that they start, and what Python's own mean."""

from __future__ import annotations

import pytest
from interpool_testing import printed

pytestmark = pytest.mark.long


def test_processes_that_an_interpreter_starts_have_its_own_variables_only() -> None:
    said = printed("""
        import os
        from interpool import InterpreterManager
        from interpool_testing import Code

        SOURCE = '''
        import ctypes, os, subprocess

        def child():
            return subprocess.run(["env"], capture_output=True, text=True, env=None).stdout.splitlines()

        def run():
            os.environ["IN_HERE"] = "1"
            os.environ["IN_HERE"] = "2"
            for i in range(100):
                os.environ[f"MANY_{i}"] = str(i)
            del os.environ["GONE"]
            getenv = ctypes.CDLL(None).getenv
            getenv.restype = ctypes.c_char_p
            return getenv(b"IN_HERE").decode(), child()
        '''
        os.environ["GONE"] = "1"
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            in_c, lines = Code(session, SOURCE).call("run")
        lines = set(lines)  # what is gone is replaced by a repetition
        print(in_c, "IN_HERE=2" in lines, "IN_HERE=1" in lines, "GONE=1" in lines)
        print(sum(line.startswith("MANY_") for line in lines))
        """)
    assert said == "2 True False False\n100\n"


def test_pythons_own_variables_mean_inside_what_they_mean_outside() -> None:
    said = printed("""
        import os, subprocess, sys
        from interpool import InterpreterManager
        from interpool_testing import Code

        SOURCE = '''
        import subprocess, sys, warnings

        def state():
            return hash("interpool"), sys.flags.optimize, sys.dont_write_bytecode, sys.warnoptions, [
                flag for flag in subprocess._args_from_interpreter_flags()
            ], (sys.flags.isolated, sys.flags.no_site, sys.flags.ignore_environment)
        '''
        os.environ |= {
            "PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore::FutureWarning",
        }
        names = SOURCE + "print(state())"
        outside = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True).stdout
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            print(str(Code(session, SOURCE).call("state")) == outside.strip(), outside)
        """)
    assert said.startswith("True "), said
