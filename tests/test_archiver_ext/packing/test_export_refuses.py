"""Exports that are refused, in this process: pack does the same in one of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from test_archiver_ext.building import build, refused_build

if TYPE_CHECKING:
    from pathlib import Path

    from test_archiver_ext.conftest import Write

PROJECT = {
    "mypkg/factory.py": """
        import threading

        import torch
        from torch.nn.utils import parametrizations, parametrize

        from mypkg.helper import Keeper

        def build():
            return lambda: 0

        def nested():
            return Keeper(extra={"deep": threading.Lock()})

        def module():
            return Keeper(extra=threading)

        def local():
            class Local: pass
            return Keeper(extra=Local())

        def good():
            return Keeper(extra=1)

        def lazy():
            return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LazyLinear(2))

        def parametrized():
            return torch.nn.Sequential(torch.nn.ReLU(), parametrizations.weight_norm(torch.nn.Linear(2, 2)))

        def folded():
            model = parametrized()
            parametrize.remove_parametrizations(model[1], "weight")
            return model

        def cleared():
            model = folded()
            model[1]._load_state_dict_pre_hooks.clear()
            return model
    """,
    "mypkg/helper.py": """
        import annotated_types

        class Keeper:
            def __init__(self, extra):
                self.extra = extra
            def __call__(self):
                return self.extra
    """,
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "start", "also"),
    [
        ("build", "mypkg/factory.py:10: return lambda: 0", "cannot be pickled (function)"),
        ("nested", "the object that mypkg.factory:nested gives", "at extra.deep (lock)"),
        ("module", "the object that mypkg.factory:module gives", "at extra (module)"),
        ("local", "the object that mypkg.factory:local gives", "at extra (type)"),
    ],
)
def test_object_that_cannot_be_pickled_is_refused(
    importable: Write, tmp_path: Path, name: str, start: str, also: str
) -> None:
    error = refused_build(f"mypkg.factory:{name}", importable(PROJECT), tmp_path)
    assert error.message.startswith(start)
    assert also in error.message
    advice = {
        "nested": "make it when the model is first used",
        "module": "import it where it is used, not into an attribute",
    }
    expected = advice.get(name, "define it at the top level of a module")
    assert error.message.splitlines()[-1].startswith(f"  What to do: {expected}")


@pytest.mark.parametrize("name", ["parametrized", "folded"])
def test_what_to_do_about_a_parametrized_layer_is_all_that_is_needed(
    importable: Write, tmp_path: Path, name: str
) -> None:
    error = refused_build(f"mypkg.factory:{name}", importable(PROJECT), tmp_path)
    assert " cannot be pickled at 1" in error.message
    (advice,) = (line for line in error.message.splitlines() if line.startswith("  What to do: "))
    assert "remove_parametrizations(layer, 'weight')" in advice
    assert advice.endswith("After weight_norm also layer._load_state_dict_pre_hooks.clear()")
    build("mypkg.factory:cleared", tmp_path, tmp_path)


def test_layers_without_weights_are_refused(importable: Write, tmp_path: Path) -> None:
    error = refused_build("mypkg.factory:lazy", importable(PROJECT), tmp_path)
    assert error.message.startswith(
        "the object that mypkg.factory:lazy gives has no weights yet at 1 (LazyLinear): "
    )
    assert error.message.endswith("call it once where it is built")


def test_denied_module_starts_with_the_line_that_imports_it(importable: Write, tmp_path: Path) -> None:
    error = refused_build("mypkg.factory:good", importable(PROJECT), tmp_path, deny=("annotated_*",))
    assert error.message.splitlines() == [
        "mypkg/helper.py:2: import annotated_types",
        "  needs annotated_types, which is denied by --deny annotated_*",
        "  What to do: remove the import, or leave the module out with --mock annotated_types",
    ]


@pytest.mark.long
def test_compiled_code_is_named_with_the_line_and_the_way_to_it(importable: Write, tmp_path: Path) -> None:
    root = importable({"mypkg/m.py": "import yaml\ndef entry(): pass\ndef build(): return entry"})
    error = refused_build("mypkg.m:build", root, tmp_path, intern=("yaml.**",))
    assert error.message.splitlines() == [
        "mypkg/m.py:1: import yaml",
        "  needs yaml._yaml, which is compiled code, which no archive can hold",
        "  by way of mypkg.m -> yaml -> yaml.cyaml -> yaml._yaml",
        "  What to do: install it where the model is served and add --extern yaml.**",
    ]


@pytest.mark.long
def test_of_the_projects_own_package_only_the_compiled_module_is_to_be_taken_from_the_server(
    importable: Write, tmp_path: Path
) -> None:
    source = """
        import sys
        import types

        sys.modules["mypkg._C"] = compiled = types.ModuleType("mypkg._C")
        compiled.__file__ = __file__.replace("m.py", "_C.abi3.so")

        def entry():
            import mypkg._C

        def build():
            return entry
    """
    error = refused_build("mypkg.m:build", importable({"mypkg/m.py": source}), tmp_path)
    assert error.message.splitlines() == [
        "mypkg/m.py:9: import mypkg._C",
        "  needs mypkg._C, which is compiled code, which no archive can hold",
        "  What to do: install it where the model is served and add --extern mypkg._C",
    ]


@pytest.mark.long
def test_module_that_leaves_python_when_scanned_is_named(importable: Write, tmp_path: Path) -> None:
    root = importable(
        {
            "mypkg/m.py": """
                def entry():
                    import mypkg.script
                def build():
                    return entry
            """,
            "mypkg/script.py": "raise SystemExit(2)",
        }
    )
    error = refused_build("mypkg.m:build", root, tmp_path)
    assert error.message.startswith("mypkg/m.py:3: import mypkg.script\n")
    assert "importing mypkg.script failed: SystemExit: 2" in error.message
    assert "__main__" in error.message
    assert error.user_traceback.count("File ") == 1


@pytest.mark.long
def test_mocked_module_that_the_object_needs_is_refused(importable: Write, tmp_path: Path) -> None:
    source = {
        "mypkg/m.py": """
            import annotated_types
            class Held:
                def __init__(self):
                    self.held = annotated_types.Gt(3)
                def __call__(self):
                    pass
        """
    }
    error = refused_build("mypkg.m:Held", importable(source), tmp_path, mock=("annotated_types",))
    assert error.message.startswith("mypkg/m.py:2: import annotated_types\n")
    assert "mocked by --mock annotated_types, but the object" in error.message


def test_object_of_another_archive_is_refused_with_what_to_do(importable: Write, tmp_path: Path) -> None:
    source = """
        class Entry:
            def __call__(self): ...
        Entry.__module__ = "<torch_package_0>.elsewhere"
        entry = Entry()
    """
    error = refused_build("mypkg.m:entry", importable({"mypkg/m.py": source}), tmp_path)
    assert "it was loaded from another archive" in error.message


@pytest.mark.parametrize(
    ("is_there", "said"),
    [(True, "holds a class or function of __main__"), (False, "(type): PicklingError: ")],
    ids=["in the program", "in another program"],
)
@pytest.mark.parametrize("holder", ["model", "example inputs"])
def test_class_of_the_program_itself_is_refused_with_what_to_do(
    importable: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_there: bool,
    said: str,
    holder: str,
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "Own", None, raising=False)
    source = f"""
        import sys
        class Own:
            def __call__(self, own): ...
        Own.__module__ = "__main__"
        sys.modules["__main__"].Own = Own if {is_there} else None
        def of_a_module(own): ...
        entry = Own()
        def build():
            return of_a_module
        def example_inputs():
            return (Own(),)
    """
    spec = "mypkg.m:entry" if holder == "model" else "mypkg.m:build"
    inputs = None if holder == "model" else "mypkg.m:example_inputs"
    error = refused_build(spec, importable({"mypkg/m.py": source}), tmp_path, inputs=inputs)
    assert said in error.message
    assert error.message.endswith(
        "\n  What to do: move it from the script or notebook (__main__) to a module, such as models.py, "
        "and import it from there"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("option", "said"), [("mock", "always takes from the server"), ("deny", "is denied by")]
)
def test_standard_library_is_denied_but_never_mocked(
    importable: Write, tmp_path: Path, option: str, said: str
) -> None:
    source = {"mypkg/m.py": "import json\ndef entry(): pass\ndef build(): return entry"}
    error = refused_build("mypkg.m:build", importable(source), tmp_path, **{option: ("json",)})
    assert error.message.startswith("mypkg/m.py:1: import json\n")
    assert said in error.message
