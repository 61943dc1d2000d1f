NAMES = ["one", "two"]
