from .roi_heads import RoIHeads
from .rpn import RegionProposals

__all__ = ["RegionProposals", "RoIHeads"]
