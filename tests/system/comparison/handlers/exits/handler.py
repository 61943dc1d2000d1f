"""Ends its worker when it is asked to."""

import sys

served = 0


def handle(data, context):
    global served
    if data is None:
        return None
    if data[0]["body"] == "exit":
        sys.exit(3)
    served += 1
    return [{"served": served}]
