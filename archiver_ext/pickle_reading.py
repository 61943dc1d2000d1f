"""Reads a pickle as a description of its object, without creating the object.

It executes opcodes on a stack of plain descriptions: no class is imported, and nothing is called, hashed or
compared. So a hostile pickle can only be refused. ``native/archive/unpickler.py`` loads pickles.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any

from interpool.native.archive.pickle_names import current_name


class UnreadablePickle(ValueError):
    """The bytes are not a pickle, or a damaged one."""


@dataclass(eq=False, repr=False, slots=True)  # its text could be exponentially long, because parts are shared
class Described:
    """A value that is not a number, a string, bytes or None.

    Attributes:
        what: ``list``, ``tuple``, ``dict``, ``set``; ``global`` for a class or function itself;
            ``persistent`` for data outside of the pickle; ``object`` for the result of a call.
        name: of a global, ``module:name`` in Python 3; of an object, the name of its class or function.
        parts: elements, or arguments of the call.
        pairs: keys and values.
        state: the argument of BUILD.
    """

    what: str
    name: str = ""
    parts: list[Any] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    state: Any = None


_EMPTY = {"EMPTY_LIST": "list", "EMPTY_TUPLE": "tuple", "EMPTY_DICT": "dict", "EMPTY_SET": "set"}
_MARKED = {"LIST": "list", "TUPLE": "tuple", "FROZENSET": "set"}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NOTHING = ("FRAME", "STOP", "READONLY_BUFFER")
_LEAST_COPIED = 1 << 20
# Opcodes that push their argument.
_LITERALS = {
    code.name
    for code in pickletools.opcodes
    if code.arg is not None and not code.stack_before and len(code.stack_after) == 1
} - {"GET", "BINGET", "LONG_BINGET", "PERSID", "GLOBAL", "INST", "EXT1", "EXT2", "EXT4"}


def read_pickle(content: bytes) -> Any:
    """Return the pickle's value: a plain value, or a description.

    Raises:
        UnreadablePickle: it cannot be read to its end.
    """
    return _followed(content).stack.pop()


def globals_of(content: bytes) -> set[str]:
    """Return ``module:name`` of every global in a pickle, in Python 3; none if it is damaged."""
    try:
        return _followed(content).globals
    except UnreadablePickle:
        return set()


def _followed(content: bytes) -> _Machine:
    machine = _Machine(_LEAST_COPIED + len(content))
    try:
        for opcode, argument, _ in pickletools.genops(content):
            machine.step(opcode.name, argument)
        machine.stack[-1]  # the pickle's value
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError) as error:
        raise UnreadablePickle(str(error)) from None
    return machine


class _Machine:
    """Follows a pickle.

    Args:
        most_copied: parts that may be copied. Each call copies its arguments, and a few bytes can repeat one.
    """

    def __init__(self, most_copied: int) -> None:
        self._left = most_copied
        self.stack: list[Any] = []
        self.globals: set[str] = set()
        self._protocol = 0
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(Described(_EMPTY[name]))
        elif name == "MARK":
            self._marks.append(stack)
            self.stack = []
        elif name in _MARKED:
            self._push(Described(_MARKED[name], parts=self._since_mark()))
        elif name in _SHORT_TUPLES:
            count = _SHORT_TUPLES[name]
            stack.append(Described("tuple", parts=[stack.pop() for _ in range(count)][::-1]))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name not in _NOTHING:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        match name:
            case "PROTO":
                self._protocol = argument
            case "GLOBAL":
                self._push(self._global(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                attribute, module = self.stack.pop(), self.stack.pop()
                if not isinstance(module, str) or not isinstance(attribute, str):
                    raise ValueError("a global without a name")
                self._push(self._global(module, attribute))
            case "APPEND":
                value = self.stack.pop()
                self.stack[-1].parts.append(value)
            case "APPENDS" | "ADDITEMS":
                values = self._since_mark()
                self.stack[-1].parts.extend(values)
            case "SETITEM":
                value, key = self.stack.pop(), self.stack.pop()
                self.stack[-1].pairs.append((key, value))
            case "SETITEMS":
                values = self._since_mark()
                self.stack[-1].pairs.extend(_pairs(values))
            case "DICT":
                self._push(Described("dict", pairs=_pairs(self._since_mark())))
            case "REDUCE" | "NEWOBJ":
                arguments, maker = self.stack.pop(), self.stack.pop()
                self._push(self._made(maker, arguments.parts))
            case "NEWOBJ_EX":
                named, arguments, maker = self.stack.pop(), self.stack.pop(), self.stack.pop()
                self._push(self._made(maker, arguments.parts, named.pairs))
            case "INST":
                self._push(self._made(self._global(*argument.split(" ", 1)), self._since_mark()))
            case "OBJ":
                maker, *rest = self._since_mark()
                self._push(self._made(maker, rest))
            case "BUILD":
                state = self.stack.pop()
                self.stack[-1].state = state
            case "BINPERSID":
                self._push(Described("persistent", parts=_parts(self.stack.pop())))
            case "PERSID":
                self._push(Described("persistent", parts=[argument]))
            case "POP":
                if self.stack:
                    self.stack.pop()
                else:
                    self._since_mark()
            case "POP_MARK":
                self._since_mark()
            case "DUP":
                self._push(self.stack[-1])
            case "EXT1" | "EXT2" | "EXT4" | "NEXT_BUFFER":
                self._push(Described("object"))
            case _:
                raise ValueError(f"unknown opcode {name}")

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _made(self, maker: Any, parts: list[Any], pairs: list[tuple[Any, Any]] | None = None) -> Described:
        name = maker.name if isinstance(maker, Described) else ""
        self._left -= len(parts) + len(pairs or ())
        if self._left < 0:
            raise ValueError("it repeats large arguments")
        return Described("object", name, list(parts), list(pairs or []))

    def _global(self, module: str, name: str) -> Described:
        found = ":".join(current_name(module, name, self._protocol))
        self.globals.add(found)
        return Described("global", found)

    def _since_mark(self) -> list[Any]:
        values = self.stack
        self.stack = self._marks.pop()
        return values


def _parts(value: Any) -> list[Any]:
    return value.parts if isinstance(value, Described) else [value]


def _pairs(values: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(values[::2], values[1::2], strict=True))
