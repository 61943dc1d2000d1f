from functorch.dim import dims  # noqa: F401 -- ships with torch
from PIL import Image
from PIL.ExifTags import TAGS

NUMBERS = {name: number for number, name in TAGS.items()}
MODES = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}


class Exif(Image.Exif):
    def number(self, name):
        return self[NUMBERS[name]]


def load(path, size, mode: Image.Resampling = Image.Resampling.BILINEAR):
    import torchvision.transforms.functional as functional  # of a training environment
    import wandb

    wandb.log({"path": path})
    return functional.to_tensor(Image.open(path).resize(size, mode))
