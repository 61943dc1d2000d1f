"""A model may fail in any way: its caller gets an error, and the process and the interpreter go on."""

from __future__ import annotations

import signal
import sys

import pytest
from interpool_testing import Code, printed

from interpool.native import InterpreterSession
from interpool.native.errors import RemoteError

FAILS = """
import sys, threading

def exit_within_python(): sys.exit("bye")
def exit_from_c(): return sorted([2, 1], key=lambda _: sys.exit(4))
def interrupt_in_a_hook():
    import torch
    x = torch.ones(1, requires_grad=True)
    def hook(gradient): raise KeyboardInterrupt
    x.register_hook(hook)
    (x * 2).backward()
def nested_json():
    import json
    return json.loads("[" * 100_000)
def nested_pickle():
    import pickle
    value = []
    for _ in range(100_000): value = [value]
    return pickle.dumps(value)
def nested_source(): return eval("(" * 500 + ")" * 500)
def endless_sort():
    def key(_): return sorted([1], key=key)
    return sorted([1], key=key)
def endless_module():
    import torch
    class Module(torch.nn.Module):
        def forward(self, x): return self(x)
    return Module()(torch.ones(1))
def endless_sort_with_a_high_limit():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        return endless_sort()
    finally:
        sys.setrecursionlimit(before)
def huge_bytes(): return bytearray(2**62)
def huge_tensor():
    import torch
    return torch.empty(2**50)
def huge_array():
    import numpy
    return numpy.empty(2**55)
def raises_in_str():
    class Odd(Exception):
        def __str__(self): raise SystemExit(1)
        __repr__ = __str__
    raise Odd
def cannot_be_pickled():
    error = ValueError("held", threading.Lock(), lambda: 0)
    error.itself = error
    error.__cause__ = error
    raise error
"""

EXPECTED = {
    "exit_within_python": ("SystemExit", "bye"),
    "exit_from_c": ("SystemExit", "4"),
    "interrupt_in_a_hook": ("KeyboardInterrupt", ""),
    "nested_json": ("RecursionError", ""),
    "nested_pickle": ("RecursionError", ""),
    "nested_source": ("SyntaxError", "too many nested parentheses"),
    "endless_sort": ("RecursionError", ""),
    "endless_module": ("RecursionError", ""),
    "endless_sort_with_a_high_limit": ("RecursionError", ""),
    "huge_bytes": ("MemoryError", ""),
    "huge_tensor": ("RuntimeError", "can't allocate memory"),
    "huge_array": ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate"),
    "raises_in_str": ("Odd", ""),
    "cannot_be_pickled": ("ValueError", "held"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_failure_is_an_error_and_the_interpreter_answers_right_after(
    session: InterpreterSession, name: str
) -> None:
    type_name, message = EXPECTED[name]
    code = Code(session, "import warnings; warnings.simplefilter('ignore')\n" + FAILS)
    with pytest.raises(RemoteError) as caught:
        code[name]()
    assert caught.value.type_name.endswith(type_name)
    assert message in caught.value.message
    assert session.global_("builtins", "sum")([1, 2]).to_value() == 3
    assert session.global_("torch", "ones")(2).to_value().tolist() == [1, 1]


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("signal.alarm(1)", "threading.Timer"),
        ("signal.setitimer(signal.ITIMER_REAL, 0.1)", "threading.Timer"),
        ("faulthandler.dump_traceback_later(1, exit=True)", "would end the process"),
    ],
)
def test_calls_that_act_on_the_process_are_refused(
    session: InterpreterSession, source: str, named: str
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)]
    code = Code(session, f"import faulthandler, signal\ndef attempt(): {source}")
    with pytest.raises(RemoteError, match=named) as caught:
        code["attempt"]()
    assert caught.value.type_name == "ValueError"  # what CPython raises on any thread but the main one
    assert handlers == [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)]


@pytest.mark.parametrize(
    "source",
    [
        "signal.signal(signal.SIGTERM, print)",
        "signal.set_wakeup_fd(1)",
        "faulthandler.register(signal.SIGUSR1)",
        "faulthandler.enable()",
        "faulthandler.disable()",
        "asyncio.new_event_loop().add_signal_handler(signal.SIGUSR1, print)",
    ],
)
def test_calls_for_the_processs_signals_are_warned_of_and_go_on(
    session: InterpreterSession, source: str
) -> None:
    """As a handler's own process would let it: registration must not end there."""
    watched = (signal.SIGTERM, signal.SIGUSR1)
    handlers = [signal.getsignal(number) for number in watched]
    dispositions = _signal_masks()
    code = Code(
        session,
        f"""
        import asyncio, faulthandler, signal, warnings
        def attempt():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                {source}
            return [str(warning.message) for warning in caught], faulthandler.is_enabled()
        """,
    )
    warned, enabled = code.call("attempt")
    assert warned
    assert all("has no effect in here" in each for each in warned), warned
    assert not enabled
    assert handlers == [signal.getsignal(number) for number in watched]
    assert dispositions == _signal_masks()


def _signal_masks() -> list[str]:
    """What the kernel says of this process's signals: caught and ignored ones."""
    with open("/proc/self/status", encoding="ascii") as file:
        return [line for line in file if line.startswith(("SigIgn", "SigCgt"))]


def test_a_handler_that_was_set_is_the_one_that_getsignal_gives(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import signal, warnings
        warnings.simplefilter("ignore")
        def attempt():
            def stop(*_): pass
            first = signal.getsignal(signal.SIGUSR2)
            before = signal.signal(signal.SIGUSR2, stop)
            held = signal.getsignal(signal.SIGUSR2) is stop
            again = signal.signal(signal.SIGUSR2, signal.SIG_DFL) is stop
            return [before == first, held, again]
        def nonsense(number, handler): signal.signal(number, handler)
        """,
    )
    assert code.call("attempt") == [True, True, True]
    with pytest.raises(RemoteError, match="signal number out of range"):
        code.call("nonsense", 4711, 0)
    with pytest.raises(RemoteError, match="signal handler must be"):
        code.call("nonsense", 15, "text")


def test_calls_that_cancel_a_timer_are_let_through(session: InterpreterSession) -> None:
    assert session.global_("signal", "alarm")(0).to_value() == 0
    assert session.global_("signal", "setitimer")(signal.ITIMER_REAL, 0).to_value() == (0.0, 0.0)


def test_a_recursion_limit_that_no_stack_holds_is_lowered(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import sys, warnings
        def limit(value):
            before = sys.getrecursionlimit()
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    sys.setrecursionlimit(value)
                return sys.getrecursionlimit(), len(caught)
            finally:
                sys.setrecursionlimit(before)
        """,
    )
    deepest = 1500 if sys.version_info[:2] == (3, 13) else 3000
    assert code.call("limit", 1200) == (1200, 0)
    assert code.call("limit", 10**6) == (deepest, 1)


@pytest.mark.parametrize("stack", [1 << 20, -1], ids=["1 MiB", "unlimited"])
def test_models_and_their_threads_may_recurse_through_c_under_any_limit_on_stacks(stack: int) -> None:
    said = printed(
        """
        import otf
        from interpool import InterpreterManager
        from interpool_testing import Code
        from serving_client import Client

        SOURCE = '''
        import threading

        def deep():
            def key(_): return sorted([1], key=key)
            try:
                sorted([1], key=key)
            except RecursionError:
                return "too deep"

        def deep_on_a_thread(stack):
            said = []
            threading.stack_size(stack)
            thread = threading.Thread(target=lambda: said.append(deep()))
            thread.start()
            thread.join()
            return said
        '''
        with InterpreterManager(1) as manager:
            client = Client(manager, "recurse")
            print(client.ask(otf.load()))
            client.close()
            with manager.acquire_session(call_limit=60) as session:
                code = Code(session, SOURCE)
                print(code.call("deep"), *(code.call("deep_on_a_thread", size) for size in (0, 1 << 18)))
        """,
        stack=stack,
    )
    assert said == "too deep\ntoo deep ['too deep'] ['too deep']\n"


def test_the_locale_is_the_hosts(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        import locale
        def change(name): return locale.setlocale(locale.LC_NUMERIC, name)
        """,
    )
    now = code.call("change", None)
    assert code.call("change", "") == now == code.call("change", now)
    with pytest.raises(RemoteError, match=r"locale\.Error.*'de_DE\.UTF-8' would apply to the whole process"):
        code["change"]("de_DE.UTF-8")


def test_the_time_zone_is_the_hosts() -> None:
    said = printed("""
        import os, time
        from interpool import InterpreterManager
        from interpool.native.errors import RemoteError
        from interpool_testing import Code

        SOURCE = '''
        import os, time
        def change(value): os.environ["TZ"] = value
        def remove(): del os.environ["TZ"]
        def zone(): return os.environ.get("TZ")
        '''
        os.environ["TZ"] = "UTC0"
        time.tzset()
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            code = Code(session, SOURCE)
            tzset = session.global_("time", "tzset")

            def attempt():
                try:
                    tzset()
                    print("taken")
                except RemoteError as error:
                    print(error.type_name, "would apply to the whole process" in error.message)
                print(code.call("zone"), time.mktime((1970, 1, 1, 0, 0, 0, 0, 0, 0)))  # it reads TZ each time

            attempt()
            code.call("change", "JST-9")
            attempt()
            code.call("remove")
            attempt()
            code.call("change", "UTC0")
            attempt()
        """)
    refused = "RuntimeError True\n"
    assert said == f"taken\nUTC0 0.0\n{refused}JST-9 0.0\n{refused}None 0.0\ntaken\nUTC0 0.0\n"


@pytest.mark.long
def test_the_processs_standard_descriptors_stay_its_own() -> None:
    said = printed("""
        import os
        from interpool import InterpreterManager
        CODE = '''
        import os, sys, warnings
        null = os.open("/dev/null", os.O_WRONLY)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for descriptor in (0, 1, 2):
                os.close(descriptor)
                assert os.dup2(null, descriptor) == descriptor
            os.closerange(0, 100)
        assert len(said) == 7, said
        open(1, "w").close()
        os.fdopen(2, "w").close()
        try:
            os.dup2(-1, 1)
        except OSError:
            os.close(null)  # a descriptor of the model's own is closed
        try:
            os.close(null)
        except OSError:
            done = True
        '''
        import textwrap
        before = [os.fstat(descriptor).st_ino for descriptor in (0, 1, 2)]
        with InterpreterManager(1) as manager, manager.acquire_session() as session:
            scope = session.global_("builtins", "dict")()
            session.global_("builtins", "exec")(textwrap.dedent(CODE), scope)
            print(scope.item("done").to_value())
        print([os.fstat(descriptor).st_ino for descriptor in (0, 1, 2)] == before)
        """)
    assert said == "True\nTrue\n"
