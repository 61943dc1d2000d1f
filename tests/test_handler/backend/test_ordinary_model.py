"""Ordinary archives' models that share an interpreter, each loaded and asked as by a worker."""

from __future__ import annotations

from pathlib import Path

import otf
import pytest
from extracted import extracted, token

from interpool.handler.host.service_entry import SERVICE_FUNCTION, SERVICE_MODULE
from interpool.native import InterpreterSession, PyObj


def replied(session: InterpreterSession, service: PyObj, message: bytes) -> bytes:
    reply: bytes = session.global_("builtins", "bytes")(service(message)[0]).to_value()
    return reply


def loaded(session: InterpreterSession, directory: Path, code: str, **files: str) -> PyObj:
    """The service of a worker whose model has that code in its handler file."""
    extracted(directory)
    for name, text in {"handler": code, **files}.items():
        (directory / f"{name}.py").write_text(text)
    session.global_("importlib", "import_module")(SERVICE_MODULE)
    request = otf.load(directory.name, str(directory), handler="handler.py:handle")
    worker = token(ordinary=True).as_text()
    service = session.global_(SERVICE_MODULE, SERVICE_FUNCTION)(worker, request)
    assert replied(session, service, request)[:4] == otf.integer(200)
    return service


def asked(session: InterpreterSession, service: PyObj) -> str:
    """What the model answers."""
    reply = replied(session, service, otf.predict(b""))
    return next(iter(otf.answers(reply).values()))[2].decode()


ANSWERS = """
def handle(data, context):
    return None if data is None else [answer()]
"""


def test_the_pythonpath_of_another_model_does_not_count(session: InterpreterSession, tmp_path: Path) -> None:
    before = (
        "import os, sys\nos.environ['PYTHONPATH'] = os.pathsep.join(filter(None, sys.path))\n"
        "def answer(): return 'before'\n" + ANSWERS
    )
    service = loaded(session, tmp_path / "before", before)
    for _ in range(3):  # its first calls are followed by checks, without any model in place
        assert asked(session, service) == "before"
    after = "import colorsys\ndef answer(): return colorsys.WHERE\n" + ANSWERS
    service = loaded(session, tmp_path / "after", after, colorsys="WHERE = 'mine'")
    assert asked(session, service) == "mine"


@pytest.mark.parametrize("attribute", ["return Odd()", "raise ImportError('is not installed')"])
def test_a_model_with_an_odd_object_among_its_modules_disturbs_no_other(
    session: InterpreterSession, tmp_path: Path, attribute: str
) -> None:
    plain = loaded(session, tmp_path / "plain", "def answer(): return 'plain'\n" + ANSWERS)
    odd = f"""
import sys
class Odd:
    def __getattr__(self, name): {attribute}
sys.modules["odd_module"] = Odd()
def answer(): return "odd"
{ANSWERS}"""
    service = loaded(session, tmp_path / "odd", odd)
    assert [asked(session, one) for one in (service, plain) * 3] == ["odd", "plain"] * 3
