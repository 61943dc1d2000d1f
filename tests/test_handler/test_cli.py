from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import click
import pytest
from archives import archive_of
from click.testing import CliRunner, Result
from paths import ROOT

from interpool.archiver_ext import PackError
from interpool.archiver_ext.commands import subcommands
from interpool.handler.cli import exit_status, main
from interpool.handler.errors import ServeError
from interpool.handler.frontend.server_home import lives_in
from interpool.handler.frontend.shim import make_private
from interpool.handler.host import control, prometheus
from interpool.handler.torchserve import HOME_VARIABLE
from interpool.native.diagnostics.doctor import Check
from interpool.native.errors import ArchiveError, InterpoolError


def run(*args: str | Path | int) -> Result:
    return CliRunner().invoke(main, [*map(str, args)])


def every(kind: type[InterpoolError]) -> list[type[InterpoolError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in every(child))]


def test_each_kind_of_error_has_an_exit_status() -> None:
    expected = {ArchiveError: 3, PackError: 4, ServeError: 5}
    for kind in every(InterpoolError):
        base = next((base for base in expected if issubclass(kind, base)), None)
        made = kind.__new__(kind)
        assert exit_status(made) == (1 if base is None else expected[base]), kind


def test_help_names_every_exit_status() -> None:
    said = run("--help").output
    table = said[said.index("Exit status:") :]
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["0", "1", "2", "3", "4", "5"]


def test_a_command_starts_without_the_libraries_that_only_some_need() -> None:
    program = "import sys, interpool.handler.cli; print({'pydantic', 'rich', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_commands_end_with_them(tmp_path: Path) -> None:
    missing = run("inspect", tmp_path / "none.ptpkg")
    assert missing.exit_code == 3
    assert "none.ptpkg" in missing.stderr
    with zipfile.ZipFile(tmp_path / "not.ptpkg", "w") as file:
        file.writestr("a/b", "")
    assert run("why", tmp_path / "not.ptpkg", "torch").exit_code == 3
    assert run("pack", "nowhere:x", "-o", tmp_path / "m.ptpkg", "--root", tmp_path).exit_code == 4
    assert run("archive", tmp_path / "not.ptpkg", "--export-path", tmp_path / "no").exit_code == 4
    assert run("archive", tmp_path / "not.ptpkg", "--archive-format", "rar").exit_code == 2
    assert run("serf").exit_code == 2
    assert run("handler").exit_code == 0
    with patch("interpool.handler.frontend.serving_checks.java_path", return_value=None):
        assert run("serve").exit_code == 5


def refused(monkeypatch: pytest.MonkeyPatch, command: str) -> str:
    """What ``serve``, ``status`` or ``doctor`` says that refuses where all but its surroundings is right."""
    monkeypatch.setattr("interpool.native.diagnostics.doctor.checks", lambda: ())
    monkeypatch.setattr("interpool.handler.frontend.serving_checks.java_path", lambda: "/usr/bin/java")
    with patch("os.execv") as started:
        done = run(command)
    assert not started.called
    assert done.exit_code == (1 if command == "doctor" else 5)
    return done.output


@pytest.mark.parametrize("command", ["serve", "status", "doctor"])
def test_commands_refuse_a_runtime_directory_that_shims_would_refuse_before_a_model_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o755)
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(runtime))
    said = refused(monkeypatch, command)
    assert f"the runtime directory {runtime} must be a directory of this user with mode 0700" in said
    assert f"chmod 700 {runtime}" in said


@pytest.mark.parametrize("command", ["serve", "status", "doctor"])
@pytest.mark.parametrize("place", ["run", "~/run"])
def test_a_runtime_directory_that_is_another_for_each_process_is_refused(
    monkeypatch: pytest.MonkeyPatch, command: str, place: str
) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", place)
    said = refused(monkeypatch, command)
    assert f"INTERPOOL_RUNTIME_DIR must be an absolute path, not {place!r}" in said


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_an_unknown_variable_keeps_the_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("INTERPOOL_SIGNATURE_KEY", "/k.pem")
    assert "INTERPOOL_SIGNATURE_KEY (is it INTERPOOL_SIGNATURE_KEYS?)" in refused(monkeypatch, command)


def test_a_java_home_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setattr("interpool.native.diagnostics.doctor.checks", lambda: ())
    monkeypatch.setenv("PATH", str(java.parent), prepend=os.pathsep)
    for home, what in ((tmp_path / "none", "does not exist"), (java.parent, "holds no bin/java")):
        monkeypatch.setenv("JAVA_HOME", str(home))
        for command, status in (("serve", 5), ("doctor", 1)):
            with patch("os.execv") as started:
                done = run(command)
            assert (started.called, done.exit_code) == (False, status)
            assert f"JAVA_HOME is {home}, which {what}" in done.output
            assert f"correct JAVA_HOME, or unset it: {java} is on PATH" in done.output


def test_a_package_is_no_model_for_torchserve() -> None:
    for args in (["--models", "m=store/m.ptpkg"], ["--models", "store/m.ptpkg"]):
        done = run("serve", *args)
        assert done.exit_code == 2
        assert "`interpool archive store/m.ptpkg --export-path MODEL_STORE`" in done.output


def test_settings_that_a_host_would_refuse_keep_the_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("INTERPOOL_INTERPRETERS", "many")
    monkeypatch.setattr("interpool.handler.frontend.serving_checks.java_path", lambda: "/usr/bin/java")
    with patch("os.execv") as started:
        done = run("serve")
    assert (started.called, done.exit_code) == (False, 5)
    assert "INTERPOOL_INTERPRETERS" in done.output


def test_a_server_starts_if_anothers_exporter_has_the_address_of_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interpool.handler.frontend.serving_checks.java_path", lambda: "/usr/bin/java")
    monkeypatch.setattr(prometheus, "RELEASE_S", 0.0)
    monkeypatch.setattr(prometheus, "ANSWER_S", 60.0)
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("INTERPOOL_START_AHEAD", "0")
    monkeypatch.setenv("TEMP", str(tmp_path))
    monkeypatch.setenv(HOME_VARIABLE, "")  # which the command sets
    ended = threading.Event()
    with prometheus.listen("127.0.0.1:0") as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("INTERPOOL_METRICS_ADDRESS", address)
        serves = threading.Thread(target=prometheus.serve_metrics, args=(listener, ended.is_set))
        serves.start()
        stdin = os.dup(0)  # which the command exchanges
        try:
            with patch("os.execv") as started:
                done = run("serve", "--no-wait")
            lives = lives_in(tmp_path)
        finally:
            os.dup2(stdin, 0)
            ended.set()
            serves.join(60)
    assert (started.called, done.exit_code) == (True, 0), done.output
    assert lives
    assert os.path.dirname(os.environ[HOME_VARIABLE]) == str(tmp_path)
    assert f"another server's exporter answers at {address}" in done.output


def test_an_unknown_module_is_no_fault_of_the_archive(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "m.ptpkg", {"m": []})
    assert run("why", archive, "m").exit_code == 0
    result = run("why", archive, "nonsense")
    assert result.exit_code == 1
    assert result.stderr.startswith("interpool: nonsense is not in ")


def test_archives_get_interpools_own_handler_and_settings_that_it_knows(tmp_path: Path) -> None:
    archive, config = archive_of(tmp_path / "m.ptpkg", {}), tmp_path / "conf.yaml"
    config.write_text("interpool: {treacbacks: true}\n")
    args = ("archive", archive, "--export-path", tmp_path, "-c", config)
    refused = run(*args)
    assert refused.exit_code == 5
    assert "conf.yaml: unknown setting `interpool.treacbacks`; the settings are: pool" in refused.stderr
    assert not (tmp_path / "m.mar").exists()
    config.write_text("interpool: {tracebacks: true}\n")
    assert run(*args).exit_code == 0
    with zipfile.ZipFile(tmp_path / "m.mar") as mar:
        own = Path(run("handler").output.strip())
        assert mar.read(own.name) == own.read_bytes()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with two sets: of today, and of three weeks ago."""
    root = tmp_path / "cache"
    monkeypatch.setenv("INTERPOOL_CACHE", str(root))
    for name, days in (("a" * 16, 0), ("b" * 16, 21)):
        (root / name / "slots" / "0001").mkdir(parents=True)
        (root / name / "slots" / "0001" / "copy.so").write_bytes(b"x" * 3_000_000)
        (root / name / "locks").mkdir()
        facts = {"python": "3.11.7 (main)", "torch": f"2.{days}.0"}
        (root / name / "environment.json").write_text(json.dumps(facts))
        os.utime(root / name, (time.time() - days * 86400,) * 2)
    return root


def test_the_cache_is_shown_with_what_its_sets_are_for_and_when_they_were_used(cache: Path) -> None:
    shown = run("cache").output.splitlines()
    by_age = "what is unused for 14 days is removed (INTERPOOL_CACHE_DAYS)"
    by_size = "what was unused longest is removed from more than 10.0 GB (INTERPOOL_CACHE_GB)"
    assert shown[0] == f"{cache}: 6 MB; {by_age}; {by_size}"
    assert [" ".join(line.split()) for line in shown[1:]] == [
        "set size interpreters last used for",
        f"{'a' * 16} 3 MB 1 today CPython 3.11.7, torch 2.0.0",
        f"{'b' * 16} 3 MB 1 21 days ago CPython 3.11.7, torch 2.21.0",
    ]
    assert len(list(cache.iterdir())) == 2
    (newer, older) = json.loads(run("cache", "--json").output)["sets"]
    assert (newer["name"], newer["is_held"], round(older["unused_days"])) == ("a" * 16, False, 21)


def test_a_command_removes_what_is_unused_from_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("cache", "--remove", "--unused-for", 30).output.splitlines()[-1] == "removed: 0 MB"
    assert run("cache", "--remove").output.splitlines()[-1] == "removed: 3 MB"
    assert [path.name for path in cache.iterdir()] == ["a" * 16]
    monkeypatch.setenv("INTERPOOL_CACHE_DAYS", "0")
    assert json.loads(run("cache", "--json").output)["limits"] == {"days": None, "bytes": 10e9}
    monkeypatch.setenv("INTERPOOL_CACHE_GB", "0")
    assert "nothing is removed by itself" in run("cache").output
    assert run("cache", "--remove").exit_code == 2
    report = json.loads(run("cache", "--remove", "--unused-for", 0, "--json").stdout)
    assert (report["removed"], report["sets"]) == (["a" * 16], [])
    assert report["removed_bytes"] > 3_000_000
    monkeypatch.setenv("INTERPOOL_CACHE_DAYS", "soon")
    refused = run("cache")
    assert (refused.exit_code, "must be a number of days" in refused.stderr) == (1, True)
    assert run("cache", "--unused-for", 1).exit_code == 2


# ---- the same for every command --------------------------------------------------------------------

COMMANDS = sorted(main.list_commands(click.Context(main)))
WITHOUT_FACTS = {"exporter", "run", "serve"}


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(command: str, option: str) -> None:
    with patch("os.execv") as started:
        done = run(*[command] if command else [], option)
    assert done.exit_code == 0
    assert f"Usage: interpool {command}".strip() in done.output
    assert started.called == (command == "serve")  # which shows torchserve's own flags, too


def test_a_command_that_was_called_by_itself_has_the_same_help_options() -> None:
    for command in subcommands.commands:
        assert CliRunner().invoke(command, ["--no-such-option"]).exit_code == 2
        assert CliRunner().invoke(command, ["-h"]).exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_print_facts_print_them_as_json(command: str) -> None:
    found = main.get_command(click.Context(main), command)
    assert found is not None
    assert any("--json" in option.opts for option in found.params) == (command not in WITHOUT_FACTS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["inspect", "NONE"], 3, "cannot be read"),
        (["verify", "NONE"], 3, "cannot be read"),
        (["why", "NONE", "torch"], 3, "cannot be read"),
        (["sign", "NONE", "--key", "NONE"], 3, "NONE"),
        (["archive", "NONE", "--export-path", "NONE"], 4, "is not a directory"),
        (["pack", "nowhere:x", "-o", "m.ptpkg", "--root", "."], 4, "nowhere"),
        (["plan", "nowhere:x", "--root", "."], 4, "nowhere"),
        (["status", "--check", "m"], 5, "no pool host is running"),
        (["doctor", "--mar", "FILE"], 5, "is not an archive of TorchServe's"),
        (["doctor", "--imports"], 2, "--imports needs the names of modules"),
        (["cache", "--unused-for", "1"], 2, "--unused-for goes with --remove"),
        (["prepare", "--slots", "0"], 2, "0 is not in the range"),
        (["status", "--nonesuch"], 2, "No such option"),
        (["home", "and", "more"], 2, "unexpected extra argument"),
        (["serf"], 2, "No such command"),
    ],
)
def test_errors_are_one_json_object_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], status: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "FILE").write_text("no archive")
    done = run(*args, "--json")
    assert done.exit_code == status
    error = json.loads(done.stdout)["error"]
    assert (error["status"], words in error["message"]) == (status, True)
    assert words in done.stderr
    assert run(*args).stdout == ""


def test_facts_are_one_json_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "runtime"))
    for command in ("home", "handler", "cmake-dir"):
        found = json.loads(run(command, "--json").stdout)
        assert found == {"path": run(command).stdout.strip()}
    assert json.loads(run("status", "--json").stdout) == {"pools": []}
    checks = (Check("a", True, "x"), Check("b", True, "y", "do", word="WARN"), Check("c", False, "z", "do"))
    monkeypatch.setattr("interpool.handler.frontend.serving_checks.checks", lambda: ())
    for made, ok in ((checks, False), (checks[:2], True)):
        monkeypatch.setattr("interpool.native.diagnostics.doctor.checks", lambda made=made: made)
        done = run("doctor", "--json")
        assert done.exit_code == (0 if ok else 1)
        found = json.loads(done.stdout)
        assert found["ok"] == ok
        assert [each["answer"] for each in found["checks"]][: len(made)] == ["ok", "WARN", "FAIL"][
            : len(made)
        ]
        assert found["checks"][1] == {"name": "b", "answer": "WARN", "detail": "y", "fix": "do"}
        assert run("doctor").exit_code == done.exit_code


def test_doctor_prints_each_check_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> Iterator[Check]:
        yield Check("first", True, "found")
        raise KeyboardInterrupt

    monkeypatch.setattr("interpool.native.diagnostics.doctor.checks", interrupted)
    assert run("doctor").stdout == "ok    first: found\n"


def test_a_host_that_does_not_answer_is_an_error_beside_the_pools_in_one_json_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_RUNTIME_DIR", str(tmp_path / "runtime"))
    directory = tmp_path / "runtime" / "a-host"
    make_private(str(directory))
    with control.listen(directory):
        done = run("status", "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["pools"], found["error"]["status"]) == ([], 1)
    assert f"{directory}: no answer in time" in found["error"]["message"]


@pytest.mark.parametrize(
    ("args", "step"),
    [
        (["plan", "nowhere:x"], "planning nowhere:x"),
        (["pack", "nowhere:x", "-o", "m.ptpkg"], "packing nowhere:x"),
        (["verify", "NONE"], "verifying NONE"),
        (["sign", "NONE", "--key", "KEY"], "signing NONE"),
        (["archive", "NONE"], "wrapping NONE"),
        (
            ["prepare", "--slots", 2, "--import", "no_such", "--output", "x"],
            "making copies for 2 interpreters",
        ),
        (["prepare", "--slots", 1, "--bundle", "."], "making the bundle . for 1 interpreter"),
        (["cache", "--remove"], "cleaning CACHE"),
        (["doctor", "--mar", "m.mar"], "checking m.mar"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None,
)
def test_commands_that_take_seconds_say_first_what_they_do_and_leave_stdout_to_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str | int], step: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERPOOL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "m.mar").write_text("no archive")
    done = run(*args, "--json")
    said = f"interpool: {step.replace('CACHE', str(tmp_path / 'cache'))}\n"
    assert done.stderr.startswith(said)
    json.loads(done.stdout)
    assert said not in run(*args).stdout


SHELLS = re.findall(r"_INTERPOOL_COMPLETE=(\w+)_source interpool", (ROOT / "docs/installing.md").read_text())


def test_completion_is_documented_for_the_usual_shells() -> None:
    assert SHELLS == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shells_completion_is_printed_and_completes_commands_and_options(shell: str) -> None:
    def complete(instruction: str, words: str = "", at: str = "1") -> str:
        environment = {**os.environ, "_INTERPOOL_COMPLETE": f"{shell}_{instruction}"}
        asked = {"COMP_WORDS": words, "COMP_CWORD": words.rsplit(maxsplit=1)[-1] if shell == "fish" else at}
        code = "import sys; from interpool.handler.cli import main; main(prog_name='interpool')"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment, **asked}, capture_output=True, text=True
        )
        assert done.stderr == ""
        return done.stdout

    assert f"_INTERPOOL_COMPLETE={shell}_complete" in complete("source", "interpool")
    assert "doctor" in complete("complete", "interpool do")
    assert "--watch" in complete("complete", "interpool status --wa", "2")


@pytest.mark.parametrize("arguments", [["--direct"], ["--direct="], ["--direct", "--foreground"]])
def test_serve_refuses_a_direct_address_that_is_missing(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["serve", *arguments])
    assert result.exit_code == 2
    assert "--direct needs an address: HOST:PORT, or unix:/PATH" in result.stderr


@pytest.mark.parametrize("arguments", [["--direct", "nowhere"], ["--direct=unix:relative"]])
def test_serve_refuses_a_direct_address_at_which_no_server_can_listen(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOOL_DIRECT_ADDRESS", "")
    result = CliRunner().invoke(main, ["serve", *arguments, "--model-store", "."])
    assert result.exit_code == 5
    assert "direct address" in result.stderr
