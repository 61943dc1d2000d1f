from . import names


def reach():
    import helpers.lazy

    return names.NAMES, helpers.lazy.WORD
