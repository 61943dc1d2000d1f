import importlib
from pathlib import Path

MODELS = {}


def _model_folders():
    for child in sorted((Path(__file__).parent / "models").iterdir()):
        if child.is_dir() and (child / "__init__.py").exists():
            yield child.name


for _name in _model_folders():
    MODELS[_name] = importlib.import_module(f".models.{_name}", package=__name__).Model
