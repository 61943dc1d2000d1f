"""Extension modules of others: each computes in several interpreters, and in the host, at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import third_party_guest
from interpool_testing import Code, every_interpreter, pool_of, together

from interpool.native import InterpreterManager

SOME = 2  # interpreters: what is new in the second, a third does as it does; each imports for seconds
SLOW = ["sklearn", "cv2", "transformers"]
LIBRARIES = [each for each in third_party_guest.LIBRARIES if each not in SLOW]


# Interpreters of this file's own: what is imported here would make collections long in others' tests.
manager = pool_of(SOME)


@pytest.mark.parametrize(
    "library", [*LIBRARIES, *(pytest.param(library, marks=pytest.mark.long) for library in SLOW)]
)
def test_a_library_computes_in_several_interpreters_and_the_host_at_once(
    manager: InterpreterManager, library: str, tmp_path: Path
) -> None:
    with every_interpreter(manager, SOME) as sessions:
        guests = len(sessions) + 1
        inside = [session.global_("third_party_guest", "overlapping") for session in sessions]
        *answers, right = together(
            [
                lambda work=work: work(library, str(tmp_path), guests).to_value()  # type: ignore[misc]
                for work in inside
            ]
            + [lambda: third_party_guest.overlapping(library, str(tmp_path), guests)]
        )
    for answer in answers:
        assert answer == right


def test_different_libraries_compute_at_once(manager: InterpreterManager) -> None:
    orders = [LIBRARIES[i * 4 :] + LIBRARIES[: i * 4] for i in range(SOME)]
    right = third_party_guest.in_turn(LIBRARIES)
    with every_interpreter(manager, SOME) as sessions:
        inside = [session.global_("third_party_guest", "in_turn") for session in sessions]
        answers = together(
            [
                lambda work=work, order=order: work(order).to_value()  # type: ignore[misc]
                for work, order in zip(inside, orders, strict=True)
            ]
        )
    for answer in answers:
        assert answer == right


def loaded() -> set[Path]:
    """The shared objects of this process; not the templates, of which copies have their code."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = {Path(line.split(maxsplit=5)[5]) for line in maps if ".so" in line}
    return {path for path in paths if path.parts[-3] != "files"}


@pytest.mark.parametrize(
    ("library", "extension"),
    [
        ("numpy", "numpy/_core/_multiarray_umath"),
        ("tokenizers", "tokenizers/tokenizers"),
        ("pyarrow", "pyarrow/libarrow"),
    ],
)
def test_each_interpreter_has_its_own_copy_of_what_uses_python(
    manager: InterpreterManager, library: str, extension: str
) -> None:
    with every_interpreter(manager, SOME) as sessions:
        for session in sessions:
            session.global_("third_party_guest", "answer")(library)
        ids = {session.interpreter_id for session in sessions}
    third_party_guest.answer(library)
    name = Path(extension).name
    files = [path for path in loaded() if path.name.startswith(f"{name}.")]
    stock = [path for path in files if f"/{extension}." in str(path) and "site-packages" in path.parts]
    slots = [int(found[1]) for path in files if (found := re.search(r"/slots/(\d+)/", str(path)))]
    assert len(stock) == 1, files  # the host's own
    assert len(slots) == len(set(slots)), files
    assert set(slots) >= ids, files
    assert len(files) == len(slots) + 1, files


@pytest.mark.parametrize(
    ("library", "file"),
    [
        ("numpy", "libtorch_cpu.so"),
        ("scipy", "libscipy_openblas"),
    ],
)
def test_a_library_that_does_not_use_python_is_loaded_once(
    manager: InterpreterManager, library: str, file: str
) -> None:
    with every_interpreter(manager, SOME) as sessions:
        for session in sessions:
            session.global_("third_party_guest", "answer")(library)
    files = [path for path in loaded() if path.name.startswith(file)]
    origins = {path.parent for path in files}
    assert files
    assert len(files) == len(origins)  # numpy's OpenBLAS and scipy's are two libraries
    assert all("site-packages" in path.parts for path in files)


def test_types_that_python_code_gives_to_arrow_are_each_interpreters_own(manager: InterpreterManager) -> None:
    source = """
    import io
    def there_and_back():
        import pandas
        months = pandas.period_range("2020-01", periods=3, freq="M")
        file = io.BytesIO()
        pandas.DataFrame({"month": months}).to_parquet(file)
        file.seek(0)
        return [str(month) for month in pandas.read_parquet(file)["month"]]
    """
    with every_interpreter(manager, SOME) as sessions:
        codes = [Code(session, source) for session in sessions]
        answers = together([lambda code=code: code.call("there_and_back") for code in codes])  # type: ignore[misc]
    assert answers == [["2020-01", "2020-02", "2020-03"]] * len(codes)
