import functools

from torch import nn


def get_norm_layer(name):
    if name == "batch":
        return functools.partial(nn.BatchNorm2d, affine=True)
    return functools.partial(nn.InstanceNorm2d, affine=False)


def define_generator(filters, norm):
    layer = get_norm_layer(norm)
    return nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(1, filters, 3), layer(filters), nn.ReLU(True),
        nn.ReflectionPad2d(1), nn.Conv2d(filters, 1, 3), nn.Tanh(),
    )  # fmt: skip


def define_discriminator(filters):
    return nn.Sequential(nn.Conv2d(1, filters, 3), nn.LeakyReLU(0.2, True), nn.Conv2d(filters, 1, 3))
