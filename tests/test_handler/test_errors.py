"""The statuses of errors: the table at the top of ``interpool.handler.errors``, row by row."""

from __future__ import annotations

import pytest
import torch

from interpool.handler.errors import (
    InputError,
    ServeError,
    SettingsError,
    load_failure_code,
    predict_failure_code,
)
from interpool.native.errors import DigestError, SignatureError


@pytest.mark.parametrize(
    ("error", "registration", "request_"),
    [
        (SignatureError("m.ptpkg is not signed", "unsigned"), 400, 503),
        (DigestError("m.ptpkg is damaged", "digest"), 400, 503),
        (DigestError("CUDA.ptpkg is damaged", "digest"), 400, 503),
        (SettingsError("unknown setting"), 400, 503),
        (InputError("no JSON"), 500, 400),
        (InputError("CUDA is no JSON"), 500, 400),
        (ServeError("its directory is gone"), 500, 503),
        (MemoryError(), 507, 507),
        (RuntimeError("CUDA out of memory"), 507, 503),
        (torch.OutOfMemoryError("CUDA out of memory"), 507, 507),
        (AssertionError("Torch not compiled with CUDA enabled"), 500, 503),
        (ValueError("other"), 500, 503),
    ],
)
def test_each_kind_of_error_has_an_http_status(error: Exception, registration: int, request_: int) -> None:
    assert (load_failure_code(error), predict_failure_code(error)) == (registration, request_)
