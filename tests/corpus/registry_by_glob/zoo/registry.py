MODELS = {}


def register(name):
    def wrap(found):
        MODELS[name] = found
        return found

    return wrap
