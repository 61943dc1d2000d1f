from __future__ import annotations

import collections
import os
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from many_examples import EXAMPLES

from interpool.archiver_ext.inspect.storages import named_tensors
from interpool.archiver_ext.pickle_reading import Described, UnreadablePickle, read_pickle


class Thing:
    def __init__(self) -> None:
        self.name = "thing"
        self.again = self


class Calls:
    """What pickling makes of it is a call of os.mkdir."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_followed(protocol: int) -> None:
    ordered = collections.OrderedDict(x=1)
    value = [None, True, -5, 2**70, 1.5, "ü", b"raw", (1,), {"k": [2]}, {3}, frozenset([4]), ordered, Thing]
    found = read_pickle(pickle.dumps(value, protocol))
    assert found.what == "list"
    assert found.parts[:6] == value[:6]
    assert found.parts[7].what == "tuple"
    assert found.parts[8].pairs[0][0] == "k"
    assert found.parts[8].pairs[0][1].parts == [2]
    assert found.parts[12].name.endswith(":Thing")


def test_an_object_is_described_and_not_made() -> None:
    found = read_pickle(pickle.dumps(Thing(), 4))
    assert found.what == "object"
    assert dict(found.state.pairs[:1]) == {"name": "thing"}
    assert found.state.pairs[1][1] is found  # it refers to itself


@pytest.mark.parametrize("protocol", range(6))
def test_reading_a_pickle_calls_nothing(protocol: int, tmp_path: Any) -> None:
    canary = tmp_path / "called"
    found = read_pickle(pickle.dumps([Calls(str(canary))], protocol))
    assert found.parts[0].name.endswith(":mkdir")
    assert found.parts[0].parts == [str(canary)]
    assert not canary.exists()


def test_persistent_ids_are_kept() -> None:
    found = read_pickle(b"\x80\x02(X\x07\x00\x00\x00storageK\x01tQ.")
    assert (found.what, found.parts) == ("persistent", ["storage", 1])


def test_a_key_that_would_take_for_ever_to_hash_is_not_hashed() -> None:
    # A tuple of a tuple of ... twice each, 60 deep, as the key of a dict: 2**60 visits.
    content = b"}K\x00" + b"2\x86" * 60 + b"K\x01s."
    found = read_pickle(content)
    assert isinstance(found, Described)
    assert found.pairs[0][1] == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        b"\x80\x04",
        b".",
        b"(",
        b"K\x01s.",
        b"h\x05.",
        b"]K\x01R.",
        b"X\xff\xff\xff\x7fab.",
    ],
)
def test_a_pickle_that_cannot_be_followed_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadablePickle):
        read_pickle(content)


# Opcodes with their arguments, from which hostile and half-right pickles are put together.
_STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
_TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(" + _STORAGE + b"K\x00K\x01\x85K\x01\x85\x89NtR"
_FRAGMENTS = [
    *(bytes([code]) for code in range(256)),
    *(b"K\x01", b"h\x00", b"q\x00", b"q\x01", b"h\x01", b"cos\nmkdir\n", b"X\x01\x00\x00\x00a", b"\x8c\x01b"),
    *(
        b"I" + b"9" * 6000 + b"\n",
        b"\x8a\xff" + b"\x7f" * 255,
        b"(",
        b"]",
        b"}",
        b"2\x86",
        b"s",
        b"a",
        b"R",
        b"b",
    ),
    *(_STORAGE, _TENSOR),
]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.sampled_from(_FRAGMENTS), max_size=60).map(b"".join))
def test_any_bytes_are_read_or_refused_and_can_be_looked_through(content: bytes) -> None:
    try:
        found = read_pickle(content + b".")
    except UnreadablePickle:
        return
    for name, value in named_tensors(found):
        assert isinstance(name, str)
        assert isinstance(value, Described)


def test_a_call_whose_large_arguments_are_repeated_is_refused() -> None:
    arguments = b"(" + b"N" * (1 << 21) + b"tq\x00"
    call = b"h\x01h\x00R"
    assert read_pickle(arguments + b"cos\nx\nq\x01" + call + b".").parts == [None] * (1 << 21)
    with pytest.raises(UnreadablePickle, match="repeats large arguments"):
        read_pickle(arguments + b"cos\nx\nq\x01" + call * 3 + b".")


def test_numbers_that_cannot_be_shown_name_nothing() -> None:
    key = b"\x8b" + (5000).to_bytes(4, "little") + b"\x7f" * 5000
    (found,) = named_tensors(read_pickle(b"}" + key + _TENSOR + b"s."))
    assert found[0] == ""
