"""One tree of errors in both languages: what C++ throws is a class of the same name and base in Python."""

from __future__ import annotations

import re

import pytest
from interpool_testing import Code
from paths import ROOT

from interpool.native import InterpreterSession, errors
from interpool.native.errors import InterpoolError, RemoteError

HEADER = ROOT / "native/cpp/include/interpool/errors.h"
TABLE = re.findall(r"^  ERROR\((\w+), (\w+), (true|false)\)", HEADER.read_text(), re.MULTILINE)


def test_both_languages_have_the_same_tree() -> None:
    in_cpp = {name: base if base != "Error" else "InterpoolError" for name, base, _ in TABLE}
    in_cpp |= {"InterpoolError": "Exception", "RemoteError": "InterpoolError"}
    in_python = {
        name: found.__base__.__name__
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, InterpoolError) and found.__base__
    }
    assert in_cpp == in_python


@pytest.mark.parametrize(("name", "from_inside"), [(name, inside == "true") for name, _, inside in TABLE])
def test_what_is_raised_inside_arrives_as_itself_or_as_a_remote_error(
    session: InterpreterSession, name: str, from_inside: bool
) -> None:
    code = Code(
        session,
        f"""
        from interpool.native import errors
        def fail(): raise errors.{name}("said inside")
        """,
    )
    with pytest.raises(InterpoolError, match="said inside") as caught:
        code["fail"]()
    assert type(caught.value) is (getattr(errors, name) if from_inside else RemoteError)
