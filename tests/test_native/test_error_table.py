"""One tree of errors in both languages: what C++ throws is a class of the same name and base in Python."""

from __future__ import annotations

import pickle
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
def test_an_exception_from_inside_arrives_as_itself_or_as_a_remote_error(
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


def test_a_rule_and_a_hint_cross_as_data(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        from interpool.native import errors
        def lies(): raise errors.DigestError("a [file] is not what it was [really]", "digest")
        def lacks(): raise errors.ProvisioningError("no libpython", "Install one")
        """,
    )
    with pytest.raises(errors.DigestError) as refused:
        code["lies"]()
    assert (refused.value.message, refused.value.rule) == ("a [file] is not what it was [really]", "digest")
    assert str(refused.value) == "a [file] is not what it was [really] [digest]"
    with pytest.raises(errors.ProvisioningError, match=r"^no libpython\. Install one$") as lacking:
        code["lacks"]()
    assert lacking.value.hint == "Install one"


@pytest.mark.parametrize("arguments", ["()", "('a', 'b', 'c')", "(1, 2)", "('\\udcff', '')"])
def test_arguments_that_code_inside_has_changed_do_no_harm(
    session: InterpreterSession, arguments: str
) -> None:
    code = Code(
        session,
        f"""
        from interpool.native import errors
        def fail():
            error = errors.ArchiveError("said inside", "rule")
            error.args = {arguments}
            raise error
        """,
    )
    with pytest.raises(errors.ArchiveError):
        code["fail"]()


@pytest.mark.parametrize("error", [errors.DigestError("m", "rule"), errors.ProvisioningError("w", "h")])
def test_errors_with_more_than_a_message_can_be_pickled(error: InterpoolError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.args) == (type(error), str(error), error.args)
