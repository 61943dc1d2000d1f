"""Environment variables, set and read in many interpreters and the host at once."""

from __future__ import annotations

import pytest
from interpool_testing import assert_clean, run_program

pytestmark = pytest.mark.long


def test_variables_may_be_set_while_c_code_reads_them_and_interpreters_start() -> None:
    done = run_program(
        """
        import os, threading
        from interpool import InterpreterManager
        from interpool_testing import Code, every_interpreter, together

        SOURCE = '''
        import os, time

        def change(count):
            for i in range(count):
                os.environ[f"CHANGED_{i % 300}"] = str(i)
                if i % 3 == 0:
                    os.environ.pop(f"CHANGED_{i * 7 % 300}", None)

        def read(count):
            for _ in range(count):
                time.tzset()  # getenv, in C
        '''
        names = {}
        exec(SOURCE.replace("CHANGED", "HOSTS"), names)
        over = threading.Event()

        def change_in_host():
            while not over.is_set():
                names["change"](1000)

        changing = threading.Thread(target=change_in_host)
        changing.start()
        with InterpreterManager(3) as manager, every_interpreter(manager) as sessions:
            codes = [Code(session, SOURCE) for session in sessions]
            together([
                lambda: codes[0].call("change", 8_000),
                lambda: codes[1].call("read", 16_000),
                lambda: codes[2].call("change", 8_000),
            ])
        over.set()
        changing.join()
        """
    )
    assert_clean(done)


def test_processes_are_started_while_another_interpreter_changes_the_environment() -> None:
    """CPython 3.13's posix_spawn frees the array that it began with, if ``environ`` is another one by now."""
    done = run_program(
        """
        import subprocess, threading
        from interpool import InterpreterManager
        from interpool_testing import Code, together

        SOURCE = '''
        import os, subprocess

        def change():
            for i in range(60_000):
                os.environ[f"CHANGED_{i % 50}"] = "x" * 50
                if i % 2:
                    os.environ.pop(f"CHANGED_{i * 7 % 50}", None)

        def start():
            for _ in range(15):
                assert subprocess.run(["/bin/true"]).returncode == 0
        '''
        names = {}
        exec(SOURCE, names)
        with InterpreterManager(2) as manager:
            first, second = (each.acquire_session() for each in manager.all_instances())
            with first, second:
                codes = [Code(session, SOURCE) for session in (first, second)]
                together([lambda: codes[0].call("change"), lambda: codes[1].call("start"), names["start"]])
        """
    )
    assert_clean(done)


def test_what_one_sets_processes_that_it_starts_have_and_what_it_removes_they_have_not() -> None:
    done = run_program(
        """
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
        """
    )
    assert_clean(done)
    assert done.stdout == "2 True False False\n100\n"


def test_pythons_own_variables_mean_inside_what_they_mean_outside() -> None:
    done = run_program(
        """
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
        """
    )
    assert_clean(done)
    assert done.stdout.startswith("True "), done.stdout
