"""What a process has once, each model of an interpreter has for itself."""

from __future__ import annotations

import os
import random
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast
from urllib.request import getproxies

import numpy as np
import pytest
from interpool_testing import run_program
from ordinary_models import ANSWERS, Worker
from waiting import wait_for

from interpool.native import InterpreterManager, InterpreterSession

VIEW = "interpool.handler.backend.process_view"


def _run(session: InterpreterSession, source: str) -> object:
    """The value of ``found`` once the source has run in there."""
    names = session.global_("builtins", "dict")()
    session.global_("builtins", "exec")(source, names)
    return names["found"].to_value()


@pytest.mark.long
def test_a_model_begins_with_the_environment_that_the_process_was_started_with() -> None:
    """Also in an interpreter that has started after a neighbour changed the process's."""
    with InterpreterManager(1, max_size=2) as manager:
        with manager.acquire_session() as session:
            _run(
                session,
                "import os; os.environ['LEFT_BY'] = 'another'; home = os.environ.pop('PATH'); found = 1",
            )
        manager.resize(2, 2)
        wait_for(lambda: len(manager) == 2, "the second interpreter")
        (late,) = manager.all_instances()[1:]
        source = f"import os; from {VIEW} import ProcessView; before = 'LEFT_BY' in os.environ\n"
        source += "with ProcessView(None).entered():\n"
        source += "    found = [before, 'LEFT_BY' in os.environ, 'PATH' in os.environ]"
        with late.acquire_session() as session:
            assert _run(session, source) == [True, False, True]


def test_a_model_may_bind_os_environ_to_a_dictionary_of_its_own(session: InterpreterSession) -> None:
    source = f"""
import os
from {VIEW} import ProcessView
one, two = ProcessView(None), ProcessView(None)
with one.entered():
    os.environ = dict(os.environ, OWN="1")
found = []
for view in (two, one, two, one):
    with view.entered():
        found.append([os.environ.get("OWN"), "PATH" in os.environ, type(os.environ).__name__])
one.close()
two.close()
found.append(type(os.environ).__name__)
"""
    own, others = ["1", True, "dict"], [None, True, "_Environ"]
    assert _run(session, source) == [others, own, others, own, "_Environ"]


def test_each_model_draws_its_own_random_numbers(session: InterpreterSession) -> None:
    source = f"""
import numpy, random
from {VIEW} import ProcessView
def draw():
    return [random.random(), float(numpy.random.rand())]
one, two, three = (ProcessView(None) for _ in range(3))
with one.entered():
    random.seed(1)
    numpy.random.seed(1)
with two.entered():
    others = draw()
with three.entered():
    random.seed(1)
    others += draw()
with one.entered():
    found = [draw() + draw(), others]
"""
    drawn, others = cast("list[list[float]]", _run(session, source))
    pythons, numpys = random.Random(1), np.random.RandomState(1)
    assert drawn == [each() for _ in range(2) for each in (pythons.random, numpys.rand)]
    assert others[2] == drawn[0]
    assert not set(drawn) & {others[0], others[1], others[3]}


def test_what_a_model_makes_of_its_arguments_stays(session: InterpreterSession) -> None:
    source = f"""
import sys
from {VIEW} import ProcessView
before = sys.argv
views = [ProcessView(None) for _ in range(4)]
plain, binds, adds, odd = views

def given(number):
    return ["worker.py", "--sock-name", str(number)]

with binds.entered(given(1)):
    sys.argv = [sys.argv[0], "--config", "x.yaml"]
with adds.entered(given(1)):
    sys.argv += ["--fast"]
with odd.entered(given(1)):
    sys.argv = ("worker.py",)
found = []
for number, view in enumerate([plain, *views, *views], 2):
    with view.entered(given(number)):
        found.append(list(sys.argv))
for view in views:
    view.close()
sys.argv = before
"""
    binds, odd = ["worker.py", "--config", "x.yaml"], ["worker.py"]
    adds = ["worker.py", "--sock-name", "1", "--fast"]
    plain = [["worker.py", "--sock-name", number] for number in ("2", "3", "7")]
    assert _run(session, source) == [plain[0], plain[1], binds, adds, odd, plain[2], binds, adds, odd]


def test_models_that_make_errors_of_all_warnings_are_exchanged_as_others_are(
    session: InterpreterSession,
) -> None:
    source = f"""
import warnings
from {VIEW} import ProcessView
strict, other = ProcessView(None), ProcessView(None)
with strict.entered():
    warnings.simplefilter("error")
found = []
for view in (other, strict, other):
    with view.entered():
        found.append(("error", None, Warning, None, 0) in warnings.filters)
strict.close()
other.close()
"""
    assert _run(session, source) == [False, True, False]


def test_each_model_chooses_how_multiprocessing_starts_once(session: InterpreterSession) -> None:
    source = f"""
import multiprocessing
from {VIEW} import ProcessView
found = []
for method in ("spawn", "forkserver", "spawn"):  # the last: one of them, loaded again
    view = ProcessView(None)
    with view.entered():
        multiprocessing.set_start_method(method)
    with view.entered():
        found.append(multiprocessing.get_start_method())
    view.close()
found.append(multiprocessing.get_start_method(allow_none=True))
"""
    assert _run(session, source) == ["spawn", "forkserver", "spawn", None]


@pytest.mark.parametrize(
    ("get", "put", "value"),
    [
        ("gc.get_threshold", "gc.set_threshold(*value)", (9, 8, 7)),
        ("sys.getswitchinterval", "sys.setswitchinterval(value)", 0.5),
        ("sys.get_int_max_str_digits", "sys.set_int_max_str_digits(value)", 700),
        ("socket.getdefaulttimeout", "socket.setdefaulttimeout(value)", 5.0),
        ("stack_size", "threading.stack_size(value)", 1 << 24),
        ("gc.get_debug", "gc.set_debug(value)", 4),
        ("torch.is_anomaly_enabled", "torch.autograd.set_detect_anomaly(value, check_nan=False)", True),
        ("lambda: sys.stdin", "sys.stdin = value", "a stream"),
        ("lambda: sys.dont_write_bytecode", "sys.dont_write_bytecode = value", "yes"),
    ],
)
def test_each_model_sets_the_interpreter_for_itself(
    session: InterpreterSession, get: str, put: str, value: object
) -> None:
    source = f"""
import gc, socket, sys, threading, torch
from {VIEW} import ProcessView
setting, other = ProcessView(None), ProcessView(None)

def stack_size():
    size = threading.stack_size()  # this sets the default size
    threading.stack_size(size)
    return size

get = {get}
value, before = {value!r}, get()
with setting.entered():
    {put}
seen = []
for view in (other, setting, other):
    with view.entered():
        seen.append(get())
setting.close()
other.close()
found = [one == [before, value, before][place] for place, one in enumerate(seen)] + [get() == before]
"""
    assert _run(session, source) == [True] * 4


def test_settings_of_torchs_backends_that_are_in_python_are_each_models_own(
    session: InterpreterSession,
) -> None:
    source = f"""
import torch
from {VIEW} import ProcessView
from torch.backends import disable_global_flags, flags_frozen, mha, opt_einsum
encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
encoder = torch.nn.TransformerEncoder(encoder, 1).eval()
padding = torch.tensor([[False, False, True, True]])

def answer():
    with torch.no_grad():
        return float(encoder(torch.ones(1, 4, 8), src_key_padding_mask=padding).abs().sum())

def settings():
    flags = opt_einsum.set_flags()
    einsum = [opt_einsum.enabled, opt_einsum.strategy, *flags]
    return [mha.get_fastpath_enabled(), *einsum, flags_frozen()]

setting, other = ProcessView(None), ProcessView(None)
with other.entered():
    before, first = settings(), answer()
with setting.entered():
    mha.set_fastpath_enabled(False)
    opt_einsum.enabled, opt_einsum.strategy = "own", "greedy"
    opt_einsum.set_flags(False)
    disable_global_flags()
    own = settings()
found = [own[:4] + own[-1:]]
for view, expected in ((other, before), (setting, own), (other, before)):
    with view.entered():
        found.append([settings() == expected, view is setting or answer() == first])
setting.close()
other.close()
found.append(settings() == before)
"""
    assert _run(session, source) == [[False, "own", "greedy", False, True], *[[True, True]] * 3, True]


@pytest.mark.parametrize("imported", [True, False])
def test_values_that_pythons_library_derives_from_a_models_variables_are_the_models_own(
    session: InterpreterSession, tmp_path: Path, imported: bool
) -> None:
    """The folders of temporary files, and the proxies of ``urllib``: they are found out once."""
    own, started_with = str(tmp_path / "own"), tempfile.gettempdir()
    os.mkdir(own)
    source = f"""
import multiprocessing.util, os, sys, tempfile
from {VIEW} import ProcessView

def proxies(opener):
    return [each.proxies["http"] for each in opener.handlers if "http" in vars(each).get("proxies", [])]

def seen():
    import urllib.request
    try:
        urllib.request.urlopen("file:///nowhere")
    except OSError:
        pass
    shared = os.path.dirname(multiprocessing.util.get_temp_dir())
    return [tempfile.gettempdir(), shared, proxies(urllib.request._opener)]

sys.modules.pop("urllib.request", None)
if {imported}:
    import urllib.request
setting, other = ProcessView(None), ProcessView(None)
found = []
for view in (setting, other, setting, other):
    with view.entered():
        if view is setting:
            os.environ.update(TMPDIR={own!r}, http_proxy="http://own.invalid")
        found.append(seen())
setting.close()
other.close()
found.append([tempfile.tempdir, sys.modules["urllib.request"]._opener])
"""
    proxies = [proxy for scheme, proxy in getproxies().items() if scheme == "http"]
    own_values, others = [own, own, ["http://own.invalid"]], [started_with, started_with, proxies]
    assert _run(session, source) == [*[own_values, others] * 2, [None, None]]


@pytest.mark.parametrize("own_modules", [False, True])
def test_entries_that_a_model_adds_to_sys_path_are_its_own(
    session: InterpreterSession, tmp_path: Path, own_modules: bool
) -> None:
    source = f"""
import sys
from {VIEW} import ProcessView, take_out
from interpool.native.inside.module_scope import ModuleScope
before = sys.path[:]

def scope():
    return ModuleScope({str(tmp_path)!r}) if {own_modules} else None

setting, other = ProcessView(None), ProcessView(None, scope())
with setting.entered():
    sys.path.append("/added")
found = []
for view in (other, setting, other):
    with view.entered():
        found.append("/added" in sys.path)
take_out()
found.append(sys.path == before)
with ProcessView(None, scope()).entered():
    found.append("/added" in sys.path)
with setting.entered():
    found.append("/added" in sys.path)
setting.close()
other.close()
found.append(sys.path == before)
"""
    assert _run(session, source) == [False, True, False, True, False, True, True]


def test_a_model_whose_directory_is_removed_between_calls_goes_on_in_its_own(
    session: InterpreterSession, tmp_path: Path
) -> None:
    own, changed = tmp_path / "own", tmp_path / "changed"
    own.mkdir()
    changed.mkdir()
    source = f"""
import os
from {VIEW} import ProcessView
before = os.getcwd()
view, other = ProcessView({str(own)!r}), ProcessView({str(tmp_path)!r})
with view.entered():
    os.chdir({str(changed)!r})
found = []
for each in (other, view, other, view):
    with each.entered():
        found.append(os.getcwd())
    if os.path.exists({str(changed)!r}) and each is view:
        os.rmdir({str(changed)!r})
view.close()
other.close()
os.chdir(before)
"""
    assert _run(session, source) == [str(tmp_path), str(changed), str(tmp_path), str(own)]


def test_the_umask_that_an_ordinary_model_sets_is_its_own(tmp_path: Path) -> None:
    answers = """
def answer():
    mask = os.umask(0)
    os.umask(mask)
    return oct(mask)
"""
    usual = os.umask(0)
    os.umask(usual)
    models = {"usual": "", "open": "os.umask(0o002)", "closed": "os.umask(0o077)"}
    with InterpreterManager(1) as manager, ExitStack() as stack:
        workers = {
            name: stack.enter_context(
                closing(Worker(manager, tmp_path / name, f"import os\n{sets}\n{answers}{ANSWERS}"))
            )
            for name, sets in models.items()
        }
        said = {name: worker.ask() for name, worker in workers.items()}
    assert said == {"usual": oct(usual), "open": "0o2", "closed": "0o77"}
    assert os.umask(usual) == usual


LOGGERS = f"""
import io, logging, sys, types
from {VIEW} import ProcessView

shared = logging.getLogger("some_library")
shared.setLevel(logging.INFO)
environment = types.ModuleType("some_new_library")

def levels():
    said = []
    for name in ("some_library", "service"):
        before = logging.getLogger(name)
        lists = [len(before.handlers), len(before.filters)]
        said.append([before.level, *lists, before.propagate, before.disabled])
    return said

def load(change):
    view = ProcessView(None)
    with view.entered():
        change()
        view.loaded()
    return view

def seen(view):
    with view.entered():
        return levels()

def close(*views):
    for view in views:
        view.close()
    sys.modules.pop("some_new_library", None)
    for name in ("some_library", "service", "some_new_library"):
        logging.root.manager.loggerDict.pop(name, None)
"""


def test_a_models_changes_of_loggers_and_their_handlers_are_its_own(session: InterpreterSession) -> None:
    source = f"""{LOGGERS}
before = io.StringIO()
handler = logging.StreamHandler(before)
shared.addHandler(handler)
quiet = [logging.INFO, 1, 0, True, False], [0, 0, 0, True, False]

def change():
    logging.config.dictConfig({{"version": 1, "disable_existing_loggers": True}})
    shared.setLevel(logging.ERROR)
    handler.setFormatter(logging.Formatter("mine: %(message)s"))
    handler.setStream(io.StringIO())
    mine = logging.getLogger("service")
    mine.addHandler(logging.NullHandler())
    mine.addFilter(lambda record: True)
    mine.propagate = False

import logging.config
strict, other = load(change), load(lambda: None)
def formatted():
    return [handler.formatter is not None, handler.stream is not before]
found = []
for view in (strict, other, strict):
    found.append(seen(view))
    found.append(formatted())
strict.close()
found += [levels(), formatted()]
again = load(change)  # as after it was unloaded: not twice
found += [seen(again)[1][1]]
close(again, other)
"""
    strict = [[40, 1, 0, True, True], [0, 1, 1, False, False]]
    before = [[20, 1, 0, True, False], [0, 0, 0, True, False]]
    found = _run(session, source)
    mine, others = [True, True], [False, False]
    assert found == [strict, mine, before, others, strict, mine, before, others, 1]


def test_loggers_that_a_library_sets_up_at_its_import_are_shared_by_all_models(
    session: InterpreterSession,
) -> None:
    source = f"""{LOGGERS}
def import_library():
    sys.modules["some_new_library"] = environment
    logging.getLogger("some_new_library.part").addHandler(logging.NullHandler())

first, second = load(import_library), load(lambda: None)
found = []
for view in (first, second):
    with view.entered():
        found.append(len(logging.getLogger("some_new_library.part").handlers))
close(first)
found.append(len(logging.getLogger("some_new_library.part").handlers))
close(second)
"""
    assert _run(session, source) == [1, 1, 1]


def test_classes_of_one_name_that_two_models_allow_torch_load_are_each_ones_own(
    session: InterpreterSession,
) -> None:
    source = f"""{LOGGERS}
import io, torch

sys.modules["<torch_package_7>"] = types.ModuleType("<torch_package_7>")  # as an archive's importer does

def allow(home):
    one = type("Net", (), {{"__module__": home}})
    model = types.ModuleType("model")
    model.Net = one
    torch.serialization.add_safe_globals([one, torch.nn.Linear])
    return one

kinds, views = [], []
for home in ("model", "<torch_package_7>.model"):
    views.append(load(lambda: kinds.append(allow(home))))
found = []
for index, view in enumerate([*views, views[0]]):
    with view.entered():
        allowed = torch.serialization.get_safe_globals()
        found.append([kind in allowed for kind in kinds] + [torch.nn.Linear in allowed])
for view in views:
    view.close()
del sys.modules["<torch_package_7>"]
allowed = torch.serialization.get_safe_globals()
found.append([kind in allowed for kind in kinds] + [torch.nn.Linear in allowed])
"""
    assert _run(session, source) == [
        [True, False, True],
        [False, True, True],
        [True, False, True],
        [False, False, True],
    ]


def test_names_that_files_of_exported_models_give_to_classes_are_each_models_own(
    session: InterpreterSession,
) -> None:
    source = f"""{LOGGERS}
import torch.utils._pytree as tree

def register():
    one = type("Output", (), {{"__module__": "model"}})
    tree.register_pytree_node(
        one, lambda it: ([], None), lambda parts, _: one(), serialized_type_name="model.Output"
    )
    return one

kinds, views = [], []
for _ in range(2):
    views.append(load(lambda: kinds.append(register())))
found = []
for index, view in enumerate([*views, views[0]]):
    with view.entered():
        found.append(kinds.index(tree.SERIALIZED_TYPE_TO_PYTHON_TYPE["model.Output"]))
for view in views:
    view.close()
found.append("model.Output" in tree.SERIALIZED_TYPE_TO_PYTHON_TYPE)
"""
    assert _run(session, source) == [0, 1, 0, False]


def test_a_load_that_fails_leaves_loggers_as_they_were(session: InterpreterSession) -> None:
    source = f"""{LOGGERS}
view, other = ProcessView(None), ProcessView(None)
try:
    with view.entered():
        shared.disabled = True
        raise ValueError
except ValueError:
    pass
with other.entered():
    found = [shared.disabled]
close(view, other)
"""
    assert _run(session, source) == [False]


def test_a_logger_is_enabled_for_what_its_model_wants(session: InterpreterSession) -> None:
    """Python keeps what it found out of a logger's level."""
    source = f"""{LOGGERS}
strict, other = load(lambda: shared.setLevel(logging.ERROR)), load(lambda: None)
found = []
for view in (strict, other, strict, other):
    with view.entered():
        found.append(shared.isEnabledFor(logging.INFO))
close(strict, other)
"""
    assert _run(session, source) == [False, True, False, True]


def test_a_model_that_configures_logging_closes_no_handlers_of_its_neighbours(
    session: InterpreterSession, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    source = f"""{LOGGERS}
import logging.config
service = logging.getLogger("service")

def log():
    service.addHandler(logging.FileHandler({str(written)!r}, mode="w"))
    service.handlers[0].set_name("one")

def configure():
    handlers = {{"other": {{"class": "logging.NullHandler"}}}}
    logging.config.dictConfig({{"version": 1, "handlers": handlers, "root": {{"handlers": ["other"]}}}})

logs, configures = load(log), load(configure)
found = []
for view in (logs, configures, logs, configures):
    with view.entered():
        found.append(sorted({{"one", "other"}}.intersection(logging._handlers)))
        if view is logs:
            service.warning("a line")
close(logs, configures)
"""
    assert _run(session, source) == [["one"], ["other"]] * 2
    assert written.read_text() == "a line\n" * 2


@pytest.mark.long
def test_lines_that_a_model_keeps_in_memory_are_written_when_the_program_ends(tmp_path: Path) -> None:
    """Even if another model is served last."""
    written = tmp_path / "written"
    source = f"""
import logging.handlers, sys
from {VIEW} import ProcessView
one, other = sys.views = ProcessView(None), ProcessView(None)
with one.entered():
    handler = logging.handlers.MemoryHandler(9, target=logging.FileHandler({str(written)!r}))
    logging.getLogger("service").addHandler(handler)
    logging.getLogger("service").warning("a line")
with other.entered():
    pass
"""
    done = run_program(
        f"""
        from interpool.native import InterpreterManager
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            session.global_("builtins", "exec")({source!r}, session.global_("builtins", "dict")())
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert written.read_text() == "a line\n"
