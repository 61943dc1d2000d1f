import importlib


def locate(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def instantiate(config):
    if not isinstance(config, dict) or "_target_" not in config:
        return config
    arguments = {name: instantiate(value) for name, value in config.items() if name != "_target_"}
    return locate(config["_target_"])(**arguments)
