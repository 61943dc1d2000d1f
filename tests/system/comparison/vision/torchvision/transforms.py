"""The transforms that TorchServe's handlers compose, on PIL images."""

import enum

import numpy as np
import torch
from PIL import Image


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Resize:
    """The smaller edge becomes ``size``."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        width, height = image.size
        scale = self.size / min(width, height)
        return image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        left, top = (image.width - self.size) // 2, (image.height - self.size) // 2
        return image.crop((left, top, left + self.size, top + self.size))


class ToTensor:
    def __call__(self, image):
        array = np.array(image.convert("RGB"), dtype=np.float32) / 255
        return torch.from_numpy(array).permute(2, 0, 1).contiguous()


class Normalize:
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).reshape(-1, 1, 1)
        self.std = torch.tensor(std).reshape(-1, 1, 1)

    def __call__(self, tensor):
        return (tensor - self.mean) / self.std
