"""As much of torchvision as TorchServe's shipped handlers use, where torchvision itself cannot be had.

PyPI has torchvision for CUDA only: on a torch without CUDA it does not import, and takes transformers
along. Archives bring this one, then, as they bring what requirements.txt installs for one model. The
handlers that are compared are TorchServe's own either way.
"""

from torchvision import transforms

__all__ = ["__version__", "transforms"]
__version__ = "0.28.0"
