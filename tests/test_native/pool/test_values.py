"""Plain values on their way into an interpreter and back."""

from __future__ import annotations

import collections
import enum
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpool_testing import Code
from many_examples import EXAMPLES

from interpool.native import InterpreterManager, InterpreterSession
from interpool.native.errors import ConversionError, RemoteError


def same(one: Any, other: Any) -> bool:
    """Equal in value, type and order, all the way down; NaNs of the same bits are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


PLAIN = [
    None,
    False,
    2**63 - 1,
    -(2**63) - 1,
    2**64,
    -(10**400),
    -0.0,
    -math.inf,
    math.nan,
    5e-324,
    "a\0b",
    "ä€😀",
    "\ud800",
    "lone \udfff and paired \U0001f600",
    b"\0\xff bytes",
    [1, [2, (3, {"four": [5, None]})]],
    {"a": 1, 2: "b", None: 3.0, (1, "t"): [], b"k": {}, False: True, 2.5: ()},
    {"z": 1, "a": 2, "m": 3},
]


@pytest.mark.parametrize("value", PLAIN, ids=[ascii(value)[:30] for value in PLAIN])
def test_a_plain_value_comes_back_as_it_went(session: InterpreterSession, value: Any) -> None:
    assert same(session.from_value(value).to_value(), value)
    assert same(Code(session, "def same(x): return x").call("same", value), value)
    # By keyword, too, and as what the interpreter itself sees.
    assert session.global_("builtins", "ascii")(*[value]).to_value() == ascii(value)


def test_an_integer_too_long_to_print_crosses(session: InterpreterSession) -> None:
    assert session.from_value(-(10**5000)).to_value() == -(10**5000)


keys = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
values = st.recursive(
    keys,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=values)
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_plain_value_comes_back_as_it_went(manager: InterpreterManager, value: Any) -> None:
    with manager.acquire_session(timeout=60) as session:
        there = session.from_value(value)
        assert same(there.to_value(), value)
        assert session.global_("builtins", "ascii")(there).to_value() == ascii(value)


def test_a_value_that_comes_back_is_a_copy(session: InterpreterSession) -> None:
    value = [[1]]
    there = session.from_value(value)
    there.attr("append")(2)
    value.append([3])
    there.to_value().append(4)
    assert there.to_value() == [[1], 2]


def test_one_object_twice_in_a_value_becomes_two(session: InterpreterSession) -> None:
    inner: list[int] = []
    outer = session.from_value([inner, inner]).to_value()
    outer[0].append(1)
    assert outer == [[1], []]


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Colour.RED, 1),
        (Point(1, 2), (1, 2)),
        (collections.OrderedDict(a=1), {"a": 1}),
        (np.float64(2.5), 2.5),
        (type("Text", (str,), {})("text"), "text"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_crosses_as_the_plain_type_that_it_is(
    session: InterpreterSession, value: Any, base: Any
) -> None:
    assert same(session.from_value(value).to_value(), base)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({1, 2}, "a value of type set"),
        (1j, "a value of type complex"),
        (bytearray(b"x"), "a value of type bytearray"),
        (object(), "a value of type object"),
        (int, "a value of type type"),
        (np.int64(1), "numpy.int64"),
        (np.zeros(2), "numpy.ndarray"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_another_type_is_refused_by_its_name(
    session: InterpreterSession, value: Any, named: str, wrapped: bool
) -> None:
    what = {"outer": [1, (value,)]} if wrapped else value
    with pytest.raises(ConversionError, match=named):
        session.from_value(what)
    with pytest.raises(ConversionError, match=named):
        session.global_("builtins", "repr")(what)


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("__import__('threading').Lock()", "_thread.lock"),
        ("[(i for i in [])]", "a value of type generator"),
        ("{'key': __import__('fractions').Fraction(1, 2)}", "Fraction"),
        ("__import__('numpy').zeros(2)", "numpy.ndarray"),
    ],
)
def test_another_type_is_refused_on_the_way_back_and_stays_usable_inside(
    session: InterpreterSession, expression: str, named: str
) -> None:
    value = Code(session, f"value = {expression}")["value"]
    with pytest.raises(ConversionError, match=named):
        value.to_value()
    assert isinstance(session.global_("builtins", "repr")(value).to_value(), str)


def test_an_object_of_the_session_inside_a_container_is_refused(session: InterpreterSession) -> None:
    with pytest.raises(ConversionError, match="PyObj"):
        session.from_value([session.from_value(1)])


@pytest.mark.parametrize("make", ["value = []; value.append(value)", "value = {}; value['self'] = (value,)"])
def test_a_value_that_contains_itself_is_refused(session: InterpreterSession, make: str) -> None:
    names: dict[str, Any] = {}
    exec(make, names)
    with pytest.raises(ConversionError, match="contains itself"):
        session.from_value(names["value"])
    with pytest.raises(ConversionError, match="contains itself"):
        Code(session, make)["value"].to_value()


def test_nesting_is_followed_to_a_depth_of_200(session: InterpreterSession) -> None:
    def nested(depth: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(depth - 1):
            value = [value]
        return value

    assert same(session.from_value(nested(200)).to_value(), nested(200))
    for depth in (250, 100_000):
        with pytest.raises(ConversionError, match="nested more than 200 deep"):
            session.from_value(nested(depth))


def test_a_large_value_crosses(session: InterpreterSession) -> None:
    value = {"blob": bytes(2**24), "numbers": list(range(100_000)), "text": "ä" * 2**20}
    assert same(session.from_value(value).to_value(), value)


def test_names_of_keywords_may_be_any_text(session: InterpreterSession) -> None:
    odd = {"ä": 1, "with space": 2, "nul\0byte": 3, "lone \ud800": 4}
    assert session.global_("builtins", "dict")(**odd).to_value() == odd


def test_names_of_attributes_and_modules_are_taken_whole(session: InterpreterSession) -> None:
    # "json\0x" is not json, and json has no "loads\0x".
    for module, name in (("json", "loads\0x"), ("json\0x", "loads"), ("json", "loads\ud800")):
        with pytest.raises((RemoteError, ValueError, TypeError)):
            session.global_(module, name)
    with pytest.raises((RemoteError, ValueError)):
        session.from_value("text").attr("upper\0x")


@pytest.mark.parametrize("items", ["[[1, 2]]", "[(1,)]", "[(1, 2, 3)]", "[1]"])
def test_a_dict_that_gives_something_else_than_pairs_is_refused(
    session: InterpreterSession, items: str
) -> None:
    make = f"value = type('Sly', (dict,), {{'items': lambda self: {items}}})()"
    names: dict[str, Any] = {}
    exec(make, names)
    with pytest.raises(ConversionError, match=r"a value of type Sly cannot cross.* its items\(\) gives"):
        session.from_value(names["value"])
    with pytest.raises(ConversionError, match=r"a value of type Sly cannot cross.* its items\(\) gives"):
        Code(session, make)["value"].to_value()


def test_a_value_that_raises_while_it_is_read_is_an_error_and_no_more(session: InterpreterSession) -> None:
    code = Code(
        session,
        """
        class Sly(dict):
            def items(self): raise ValueError("no items for you")
        value = Sly(a=1)
        """,
    )
    with pytest.raises(RemoteError, match="no items for you"):
        code["value"].to_value()
    assert session.from_value([1]).to_value() == [1]
