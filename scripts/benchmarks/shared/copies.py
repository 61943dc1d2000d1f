"""Copies of a module that share its weights: what each of several threads may have to itself."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch

M = TypeVar("M", bound=torch.nn.Module)


def sharing_weights(module: M) -> M:
    """A copy with tensor objects of its own, in the same memory: threads count no references together."""
    own: dict[int, object] = {id(each): each.detach() for each in module.buffers()}
    for each in module.parameters():
        own[id(each)] = torch.nn.Parameter(each.detach(), each.requires_grad)
    return copy.deepcopy(module, own)
