import importlib

from models.base_model import BaseModel


def find_model_using_name(model_name):
    module = importlib.import_module("models." + model_name + "_model")
    target = model_name.replace("_", "") + "model"
    for name, value in module.__dict__.items():
        if name.lower() == target and issubclass(value, BaseModel):
            return value
    raise NotImplementedError(model_name)


def get_option_setter(model_name):
    return find_model_using_name(model_name).modify_commandline_options


def create_model(opt):
    return find_model_using_name(opt.model)(opt)
