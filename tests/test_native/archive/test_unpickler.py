"""What models are really pickled with gives the same object again."""

from __future__ import annotations

import argparse
import array
import collections
import datetime as dt
import decimal
import enum
import fractions
import functools
import io
import logging
import math
import operator
import pathlib
import random
import re
import sys
import types
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.package import PackageExporter, PackageImporter

from interpool.archiver_ext.packing.write.pickle_globals import pickle_globals
from interpool.archiver_ext.pickle_reading import globals_of
from interpool.native.archive.unpickler import unpickle_checked
from interpool.native.errors import ArchiveError

linear = torch.nn.Linear(2, 3)
with_attributes = torch.ones(2)
with_attributes.unit = "metre"  # type: ignore[attr-defined]


class Numbers(list[int]):
    pass


class Named(dict[str, int]):
    pass


class Several(set[int]):
    pass


class Pair(NamedTuple):
    left: int
    right: decimal.Decimal


KEPT: dict[str, Any] = {
    "plain data": {"a": [1, 2.5, None, True, "x", b"y", (1, 2), {3}, frozenset({4}), bytearray(b"z"), 1j]},
    "containers": [
        collections.OrderedDict(a=1), collections.defaultdict(list, a=[1]), collections.Counter("aab"),
        collections.deque([1], maxlen=3), types.SimpleNamespace(a=1), argparse.Namespace(b=2),
    ],
    "times and numbers": [
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.timedelta(1), decimal.Decimal("1.5"),
        fractions.Fraction(1, 3), uuid.UUID(int=7), array.array("f", [1]),
    ],
    "small things": [
        re.compile("a+", re.IGNORECASE), pathlib.PurePosixPath("a/b"), slice(1, 2), range(3), ...,
        NotImplemented, type(None), ValueError("x"), list[int], enum.Enum,
    ],
    "functions that are held": [
        len, math.sqrt, operator.mul, operator.itemgetter(1), torch.relu, torch.cat, torch.sigmoid,
        torch.nn.functional.relu, torch.nn.functional.gelu, torch.nn.init.xavier_uniform_, torch.fft.fft,
        torch.linalg.norm, np.add, np.mean,
    ],
    "unbound methods": [str.lower, dict.get, torch.Tensor.relu, torch.nn.Module.forward],
    "torch's constants": [torch.float32, torch.device("cpu"), torch.Size([1, 2]), torch.strided],
    "numpy": [np.float32(1.5), np.dtype("i4"), np.int64, np.random.RandomState(1).get_state()[0]],
}  # fmt: skip
MADE: dict[str, Any] = {
    "partial": functools.partial(torch.nn.LayerNorm, eps=1e-6),
    "bound method": linear.forward,
    "logger": logging.getLogger("some.name"),
    "numpy array": np.ones(3),
    "numpy array of objects": np.array([1, None], dtype=object),
    "masked array": np.ma.array([1, 2], mask=[0, 1]),
    "random states": [
        np.random.RandomState(1),
        np.random.default_rng(1),
        random.Random(1),
        torch.Generator(),
    ],
    "module": torch.nn.Sequential(linear, torch.nn.BatchNorm1d(3), torch.nn.GELU(), torch.nn.LSTM(3, 4)),
    "distribution": torch.distributions.Normal(0.0, 1.0),
    "sparse tensor": torch.eye(2).to_sparse(),
    "half tensor": torch.ones(2, dtype=torch.bfloat16),
    "strided tensor": torch.arange(12.0).reshape(3, 4).T[1:, ::2],
    "tensor without elements": torch.empty(0, 5),
    "parameter": torch.nn.Parameter(torch.ones(1)),
    "tensor with attributes": with_attributes,
    "bytes": io.BytesIO(b"abc"),
    "iterators": [
        iter([1, 2]),
        iter((1,)),
        iter({"a": 1}),
        iter(range(3)),
        iter("ab"),
        reversed([1]),
        enumerate([1]),
        zip([1], (2,), strict=False),
    ],
    "containers of one's own": [Numbers([1]), Named({"a": 1}), Pair(1, decimal.Decimal(2)), Several({1})],
}


def through_a_package(path: Path, value: object, protocol: int = 3) -> Any:
    with PackageExporter(path) as exporter:
        exporter.extern("**")
        exporter.save_pickle("m", "value.pkl", value, pickle_protocol=protocol)
    importer = PackageImporter(str(path))
    unpickle_checked(importer, str(path))
    return importer.load_pickle("m", "value.pkl")


@pytest.mark.parametrize("name", KEPT)
def test_values_that_models_hold_are_equal_after_a_package(tmp_path: Path, name: str) -> None:
    assert repr(through_a_package(tmp_path / "m.pt", KEPT[name])) == repr(KEPT[name])
    if name != "unbound methods":
        assert repr(through_a_package(tmp_path / "m.pt", KEPT[name], 4)) == repr(KEPT[name])


@pytest.mark.parametrize("name", [*MADE, "optimizer"])
def test_objects_that_models_are_made_of_load(tmp_path: Path, name: str) -> None:
    # The first optimizer imports torch's compiler, which takes seconds.
    value = MADE[name] if name in MADE else torch.optim.AdamW(linear.parameters())
    found = through_a_package(tmp_path / "m.pt", value)
    assert type(found) is type(value)
    if isinstance(found, torch.Tensor):
        assert torch.equal(found.to_dense(), value.to_dense())


def test_a_modules_names_are_those_that_code_asks_with(tmp_path: Path) -> None:
    """Not only equal: CPython finds the same string without comparing."""
    made = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    made.eval()
    found = through_a_package(tmp_path / "m.pt", made)
    for module, like in zip(found.modules(), made.modules(), strict=True):
        names = list(vars(module))
        assert names == list(vars(like))
        assert all(name is sys.intern(str(name)) for name in names)
        for kept in ("_parameters", "_buffers", "_modules"):
            keys = list(vars(module)[kept])
            assert keys == list(vars(like)[kept])
            assert all(name is sys.intern(str(name)) for name in keys)
    x = torch.rand(4, 2)
    assert torch.equal(found(x), made(x))


class Names(dict[str, Any]):
    """One that counts how often it is emptied."""

    cleared = 0

    def clear(self) -> None:
        Names.cleared += 1
        super().clear()


def test_a_modules_dicts_of_a_class_of_its_own_are_left_to_it(tmp_path: Path) -> None:
    made = torch.nn.Linear(2, 3)
    made._buffers = Names({"scale": torch.ones(1)})
    found = through_a_package(tmp_path / "m.pt", made)
    assert torch.equal(found._buffers["scale"], torch.ones(1))
    assert type(found._buffers) is Names
    assert Names.cleared == 0


def test_a_dict_that_is_taken_by_name_stays_as_it_is(tmp_path: Path) -> None:
    own = "import torch.nn.modules.module\nNAMES = {''.join(['trai', 'ning']): True}\nNAME = [*NAMES][0]"
    for state in (b"cown\nNAMES\n", b"}X\x08\0\0\0_bufferscown\nNAMES\ns"):
        with PackageExporter(tmp_path / "m.pt") as exporter:
            exporter.extern("**")
            exporter.save_source_string("own", own)
            made = b"\x80\x03ctorch.nn.modules.module\nModule\n)\x81"
            exporter.save_binary("m", "value.pkl", made + state + b"b.")
        importer = PackageImporter(str(tmp_path / "m.pt"))
        unpickle_checked(importer, "m.pt")
        assert isinstance(importer.load_pickle("m", "value.pkl"), torch.nn.Module)
        module = importer.import_module("own")
        assert next(iter(module.NAMES)) is module.NAME


def test_the_globals_of_a_pickle_are_those_that_loading_asks_for(tmp_path: Path) -> None:
    value = [linear, collections.Counter("ab"), torch.relu, np.ones(2)]
    assert through_a_package(tmp_path / "m.pt", value)[1] == value[1]
    taken = pickle_globals(tmp_path / "m.pt", ["torch", "collections", "numpy"])
    assert taken == sorted(set(taken))
    assert {"builtins:getattr", "collections:Counter", "torch.nn.modules.linear:Linear"} <= set(taken)


@pytest.mark.parametrize(
    "data", [b"", b"PK\3\4 is no pickle", b"\x80\x04cos\nsystem\n", b"\x80\x04\x82\x01."]
)
def test_a_file_that_is_no_pickle_has_no_globals(data: bytes) -> None:
    assert globals_of(data) == set()


def test_globals_are_found_without_importing_or_calling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    data = b"\x80\x04\x8c\x0bantigravity\x94\x8c\x04fly2\x94\x93(\x8c\x01xtR}\x8c\x01ak\x80b."
    assert globals_of(b"\x80\x04\x8c\x0bantigravity\x94\x8c\x04fly2\x94\x93(\x8c\x01xtR.") == {
        "antigravity:fly2"
    }
    assert globals_of(data) == set()  # damaged
    assert globals_of(b"\x80\x02c__builtin__\nset\n.") == {"builtins:set"}
    assert "antigravity" not in sys.modules


def test_an_error_of_the_models_own_code_stays_itself(tmp_path: Path) -> None:
    """And is not taken for a damaged pickle."""
    with pytest.raises(ZeroDivisionError):
        through_a_package(tmp_path / "m.pt", Failing())


def test_weights_of_a_gpu_that_is_not_here_are_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.package.package_exporter.location_tag", lambda _storage: "cuda:99")
    with pytest.raises(
        ArchiveError, match=r"m\.pt: its weights were packed on cuda:99, .* \[device\]"
    ) as caught:
        through_a_package(tmp_path / "m.pt", linear.weight)
    assert type(caught.value) is ArchiveError  # no pickle's fault
    importer = PackageImporter(str(tmp_path / "m.pt"))
    unpickle_checked(importer, "m.pt")
    weight = importer.load_pickle("m", "value.pkl", map_location="cpu")  # as an archive's own code may
    assert torch.equal(weight, linear.weight)


def _fail() -> None:
    raise ZeroDivisionError


class Failing:
    def __reduce__(self) -> Any:
        return Division, ()


class Division:
    def __init__(self) -> None:
        _fail()
