"""Child processes of our own: what they hand over, and what an error says of their ends."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from interpool.native import child_process
from interpool.native.child_process import ChildError, Program, run, start

MODULE = """
    import atexit, ctypes, os, signal, sys, threading, time
    from dataclasses import dataclass
    from pathlib import Path
    from interpool.native.child_process import Program, serve

    @dataclass(frozen=True)
    class Job:
        what: str
        path: Path
        content: bytes

    @dataclass(frozen=True)
    class Result:
        said: str
        where: Path | None = None

    def work(job):
        print("printed")
        match job.what:
            case "echo":
                yield Result(f"{job.content!r} {sys.stdin.read()!r} {os.getcwd()}", job.path)
            case "count":
                yield Result("one")
                yield Result("two")
            case "write much":
                yield Result("x" * (48 << 20))
            case "raise":
                raise LookupError("of its own")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise beside a thread":
                threading.Thread(target=threading.Event().wait).start()
                raise LookupError("of its own")
            case "close":
                os.close(int(sys.argv[1]))
                time.sleep(1000)
            case "end":
                atexit.register(job.path.write_text, "ended")
                ctypes.CDLL(None).puts(b"printed by C")
                yield Result("")
            case "hang":
                yield Result(str(os.getpid()))
                time.sleep(1000)
            case "leave a child":
                pid = os.fork()
                if not pid:
                    time.sleep(1000)
                job.path.write_text(str(pid))
                os._exit(3)

    if __name__ == "__main__":
        serve(Program(__spec__.name, Job, Result), work)
"""


@dataclass(frozen=True)
class Job:
    what: str
    path: Path = Path("/")
    content: bytes = b""


@dataclass(frozen=True)
class Result:
    said: str
    where: Path | None = None


PROGRAM = Program("working", Job, Result)


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "working.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def failure(what: str, path: Path = Path("/")) -> ChildError:
    with pytest.raises(ChildError) as caught:
        run(PROGRAM, Job(what, path), capture_stderr=True)
    return caught.value


def test_a_childs_output_and_input_do_not_mix_with_its_job_and_results(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(PROGRAM, Job("echo", tmp_path, b"\0\xff"), cwd=tmp_path)
    assert result == Result(rf"b'\x00\xff' '' {tmp_path}", tmp_path)
    assert capfd.readouterr() == ("", "printed\n")


def test_results_come_one_after_the_other_and_then_no_more() -> None:
    with start(PROGRAM, Job("count"), capture_stderr=True) as child:
        assert [child.result().said for _ in range(2)] == ["one", "two"]
        with pytest.raises(ChildError, match="ended with status 0 and no answer"):
            child.result()


def test_a_large_result_is_read_in_a_time_that_grows_as_its_size() -> None:
    before = time.process_time()
    assert len(run(PROGRAM, Job("write much")).said) == 48 << 20
    assert time.process_time() - before < 5


def test_a_process_with_many_open_files_can_have_children() -> None:
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, most))
        while stack.enter_context(open(os.devnull)).fileno() < 1100:
            pass
        assert run(PROGRAM, Job("echo")).where == Path("/")


def test_the_error_of_a_child_that_raises_has_its_traceback() -> None:
    error = failure("raise")
    assert str(error) == "ended with status 1 and no answer"
    assert (error.returncode, error.signal) == (1, "")
    assert "\nLookupError: of its own\n" in error.stderr


def test_a_child_that_raises_ends_though_it_has_a_thread_that_does_not() -> None:
    with pytest.raises(ChildError, match="ended with status 1") as caught:
        run(PROGRAM, Job("raise beside a thread"), timeout=60, capture_stderr=True)
    assert "\nLookupError: of its own\n" in caught.value.stderr


def test_the_error_of_a_killed_child_names_the_signal() -> None:
    error = failure("kill")
    assert str(error) == "was killed by SIGKILL (usually because memory ran out)"
    assert (error.returncode, error.signal) == (-9, "SIGKILL")


def test_a_child_that_takes_too_long_is_killed() -> None:
    with start(PROGRAM, Job("hang")) as child:
        pid = int(child.result().said)
        with pytest.raises(ChildError, match=r"took longer than 0\.2 s") as caught:
            child.result(timeout=0.2)
    assert (caught.value.returncode, caught.value.signal) == (None, "")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_can_give_no_result_any_more_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_END_SECONDS", 0.2)
    assert str(failure("close")) == "closed the pipe for its results and went on without giving one"


def test_a_child_that_has_given_its_results_runs_its_exit_functions(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(PROGRAM, Job("end", tmp_path / "ended"))
    assert (tmp_path / "ended").read_text() == "ended"
    assert sorted(capfd.readouterr().err.splitlines()) == ["printed", "printed by C"]


def test_the_end_of_a_child_is_seen_though_its_own_child_lives_on(tmp_path: Path) -> None:
    error = failure("leave a child", tmp_path / "pid")
    assert (error.returncode, str(error)) == (3, "ended with status 3 and no answer")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
