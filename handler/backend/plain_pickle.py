"""Reads pickles of plain data, by a machine that has no instruction to do anything else.

Python's unpicklers execute all instructions of a pickle. A short pickle can make them allocate much memory,
nest values deeper than C code can follow, or hash the same values without end.

This machine has only the instructions that ``torch.save`` needs for plain data, in the protocols 2 to 5. It
refuses others before it reads their arguments. It copies a text only after it has checked that the pickle
contains the whole text. It keeps numbered values in a dict, so that a large number takes no memory. The
caller says what names and references mean.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple, NoReturn

import torch

from interpool.handler.errors import InputError

MOST_STEPS: Final = 100_000
"""Instructions of a pickle; a tensor takes some 30."""
MOST_VALUES: Final = 100_000
"""Of what a pickle holds, those counted twice that it holds twice."""
MOST_AGAIN: Final = 64 << 20
"""Bytes of the texts, bytes and tensors that a pickle holds once more: models copy what they are given."""
DEEPEST: Final = 100
"""How many lists, tuples and dicts may be in each other."""

_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
_NUMBERS = {b"K": "<B", b"M": "<H", b"J": "<i", b"G": ">d"}
_LONG = b"\x8a"
# The bytes of the length that goes before the content.
_TEXTS = {b"X": 4, b"\x8c": 1, b"\x8d": 8}
_BYTES = {b"B": 4, b"C": 1, b"\x8e": 8}
_EMPTY = {b"]": list, b"}": dict, b")": tuple}
_SHORT_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}
# The bytes of the number.
_PUTS = {b"q": 1, b"r": 4}
_GETS = {b"h": 1, b"j": 4}
_MARK, _TUPLE, _APPEND, _APPENDS, _SETITEM, _SETITEMS = b"(", b"t", b"a", b"e", b"s", b"u"
_MEMOIZE, _GLOBAL, _STACK_GLOBAL, _REDUCE, _REFERENCE, _BUILD = b"\x94", b"c", b"\x93", b"R", b"Q", b"b"
_PROTOCOL, _FRAME, _STOP = b"\x80", b"\x95", b"."

_PLAIN = (type(None), bool, int, float, str, bytes, torch.Tensor)


class Maker(NamedTuple):
    """A function that a pickle may call by a name.

    Attributes:
        make: gets the arguments, and raises InputError if they are not valid.
    """

    make: Callable[..., Any]


class PlainPickle:
    """Reads one pickle.

    Args:
        name: of the body that contains the pickle, for messages.
        data: the pickle.
        named: returns the meaning of a module and a name; raises InputError if they are not allowed.
        stored: returns the meaning of a reference; raises InputError if it is not allowed.
    """

    def __init__(
        self,
        name: str,
        data: bytes | bytearray,
        named: Callable[[str, str], Any],
        stored: Callable[[Any], Any],
    ) -> None:
        self._name = name
        self._data = data
        self._named = named
        self._stored = stored
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._kept: dict[int, Any] = {}

    def value(self) -> Any:
        """Return the pickled value: None, numbers, texts, bytes, tensors; lists, tuples and dicts of them.

        Raises:
            InputError: the pickle contains something else, is damaged, or breaks a limit.
        """
        try:
            for _ in range(MOST_STEPS):
                code = self._take(1)
                if code == _STOP:
                    break
                self._step(code)
            else:
                self._refuse(f"takes more than {MOST_STEPS:,} instructions: send tensors for long lists")
            (value,) = self._stack
        except (IndexError, KeyError, ValueError, struct.error):
            self._refuse("is damaged: send it again")
        self._check(value)
        return value

    def _step(self, code: bytes) -> None:
        stack = self._stack
        if code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _NUMBERS:
            (number,) = struct.unpack(_NUMBERS[code], self._take(struct.calcsize(_NUMBERS[code])))
            stack.append(number)
        elif code == _LONG:
            stack.append(int.from_bytes(self._take(self._number(1)), "little", signed=True))
        elif code in _TEXTS:
            stack.append(self._take(self._number(_TEXTS[code])).decode("utf-8", "surrogatepass"))
        elif code in _BYTES:
            stack.append(self._take(self._number(_BYTES[code])))
        elif code in _EMPTY:
            stack.append(_EMPTY[code]())
        elif code in _PUTS:
            self._kept[self._number(_PUTS[code])] = stack[-1]
        elif code in _GETS:
            stack.append(self._kept[self._number(_GETS[code])])
        elif code == _MEMOIZE:
            self._kept[len(self._kept)] = stack[-1]
        elif code == _PROTOCOL:
            self._take(1)
        elif code == _FRAME:
            self._take(8)
        elif code == _MARK:
            self._marks.append(len(stack))
        elif code == _TUPLE:
            stack.append(tuple(self._since_mark()))
        elif code in _SHORT_TUPLES:
            stack.append(tuple(self._last(_SHORT_TUPLES[code])))
        elif code in (_APPEND, _APPENDS):
            self._extend(self._last(1) if code == _APPEND else self._since_mark())
        elif code in (_SETITEM, _SETITEMS):
            self._set(self._last(2) if code == _SETITEM else self._since_mark())
        else:
            self._refer(code)

    def _refer(self, code: bytes) -> None:
        """Execute an instruction that refers to something outside of the pickle; refuse any other."""
        if code == _GLOBAL:
            module, name = (self._line() for _ in range(2))
            self._stack.append(self._named(module, name))
        elif code == _STACK_GLOBAL:
            module, name = self._last(2)
            if type(module) is not str or type(name) is not str:
                raise ValueError
            self._stack.append(self._named(module, name))
        elif code == _REDUCE:
            maker, args = self._last(2)
            if type(maker) is not Maker or type(args) is not tuple:
                raise ValueError
            self._stack.append(maker.make(*args))
        elif code == _REFERENCE:
            self._stack.append(self._stored(self._stack.pop()))
        elif code == _BUILD:
            self._refuse("holds an object with attributes, such as a module's state_dict: send dict(value)")
        else:
            self._refuse(f"holds more than tensors and plain data (instruction {code!r}): {SEND}")

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError
        taken = bytes(self._data[self._at : end])
        self._at = end
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> str:
        return self._take(self._data.index(b"\n", self._at) + 1 - self._at)[:-1].decode()

    def _since_mark(self) -> list[Any]:
        return self._last(len(self._stack) - self._marks.pop())

    def _last(self, count: int) -> list[Any]:
        """Take the uppermost values off the stack; values below a mark that is still set are damage."""
        at = len(self._stack) - count
        if count < 0 or at < (self._marks[-1] if self._marks else 0):
            raise ValueError
        taken = self._stack[at:]
        del self._stack[at:]
        return taken

    def _extend(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise ValueError
        self._stack[-1].extend(items)

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict:
            raise ValueError
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Other keys may take long to hash, or may all have the same hash on purpose.
            if type(key) is not str and (type(key) is not int or abs(key) >> 31):
                self._refuse(
                    "holds a dict by other keys than texts and numbers of 32 bits: send one by texts"
                )
            target[key] = value

    def _check(self, value: Any) -> None:
        """Count a value's parts, and refuse too many. A value that contains itself is nested too deep."""
        left, again = MOST_VALUES, MOST_AGAIN
        met: set[int] = set()
        deeper: list[Iterator[Any]] = [iter((value,))]
        while deeper:
            for each in deeper[-1]:
                left -= 1
                if left < 0:
                    self._refuse(f"holds more than {MOST_VALUES:,} values: send tensors for long lists")
                if type(each) in (list, tuple, dict):
                    deeper.append(chain(each, each.values()) if type(each) is dict else iter(each))
                    break
                if type(each) not in _PLAIN:
                    self._refuse(f"holds more than tensors and plain data: {SEND}")
                again -= _size(each) if id(each) in met else 0
                met.add(id(each))
                if again < 0:
                    self._refuse(
                        f"holds the same values again, {MOST_AGAIN >> 20} MiB and more in all: send each once"
                    )
            else:
                deeper.pop()
            if len(deeper) > DEEPEST:
                self._refuse(f"nests more than {DEEPEST} lists, tuples and dicts: send flatter data")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(f"{self._name} is a torch.save file that {what}")


def _size(value: Any) -> int:
    """The size of a value without parts, in bytes or characters; 0 for numbers."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.itemsize
    return len(value) if isinstance(value, (str, bytes)) else 0


SEND: Final = "send tensors, numbers, texts, bytes, None, and lists, tuples and dicts of them"
"""What a client should do whose file holds something else."""
