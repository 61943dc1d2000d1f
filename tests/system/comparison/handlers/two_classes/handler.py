"""TorchServe takes one class and no more."""


class First:
    pass


class Second:
    pass
