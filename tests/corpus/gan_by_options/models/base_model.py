from abc import ABC, abstractmethod

from torch import nn


class BaseModel(nn.Module, ABC):
    @staticmethod
    def modify_commandline_options(parser):
        return parser

    @abstractmethod
    def forward(self, image): ...
