"""A fuzzer's target: request bodies that are files of tensors, as an attacker writes them.

``python fuzz_bodies.py TARGET [libFuzzer's options] [INPUT]``, with tests/ and
tests/test_native/support on PYTHONPATH; TARGET is torch.save, pickle, safetensors, npy or all, where
the first byte chooses. The result may be an InputError, or tensors that do not differ from torch's own.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=[
        "interpool.handler.backend.dense_tensors",
        "interpool.handler.backend.plain_pickle",
        "interpool.handler.backend.tensor_files",
        "interpool.handler.backend.torch_save_files",
        "interpool.native.archive.zip_structure",
    ]
):
    from test_handler.backend.forged_torch_files import FILES, PICKLES, file_of, pickle_of, tensor
    from test_handler.backend.test_forged_files import VALID, read
    from test_handler.backend.test_tensor_files import FORGED_NPY, FORGED_SAFETENSORS

warnings.simplefilter("ignore")
TARGETS = ("torch.save", "pickle", "safetensors", "npy")
LONGEST = 20_000


def one(target: str, data: bytes) -> None:
    """A body of that kind; of a pickle, one in a file that is otherwise good."""
    if target == "pickle":
        read("torch.save", file_of(data))
    else:
        read(target, data)


def seeds(target: str) -> list[bytes]:
    """Good ones, and those forged ones that are not too large."""
    if target == "all":
        return [bytes([TARGETS.index(each)]) + data for each in TARGETS for data in seeds(each)]
    found = {
        "torch.save": [*VALID["torch.save"], *FILES.values()],
        "pickle": [pickle_of(tensor()), *map(pickle_of, PICKLES.values())],
        "safetensors": [*VALID["safetensors"], *FORGED_SAFETENSORS.values()],
        "npy": [*VALID["npy"], *FORGED_NPY.values()],
    }[target]
    return [data for data in found if len(data) < LONGEST]


def main() -> None:
    target = sys.argv.pop(1)
    corpus = Path(tempfile.mkdtemp())  # below TMPDIR, which the caller sets and removes
    for number, data in enumerate(seeds(target)):
        (corpus / str(number)).write_bytes(data)

    def chosen(data: bytes) -> None:
        if target != "all":
            one(target, data)
        elif data:
            one(TARGETS[data[0] % len(TARGETS)], data[1:])

    again = any(not each.startswith("-") for each in sys.argv[1:])  # inputs that it found earlier
    atheris.Setup([*sys.argv, *([] if again else [str(corpus)])], chosen)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
