"""interpool.ray where Ray is not installed. With Ray: tests/system/test_ray.py."""

from __future__ import annotations

import sys

import pytest

import interpool.ray
from interpool.handler.errors import ServeError, SettingsError


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ServeError, match=r"pip install 'interpool\[ray\]'"):
        interpool.ray.app({"price": "price.mar"})


def test_an_entry_that_names_no_archive_is_refused_before_ray_hears_of_it() -> None:
    with pytest.raises(SettingsError, match="price"):
        interpool.ray.app({"price": {"uri": "price.mar"}})


def test_a_wrong_size_of_requests_is_refused_before_ray_hears_of_it() -> None:
    with pytest.raises(SettingsError, match="request_bytes"):
        interpool.ray.app({}, request_bytes=-1)
