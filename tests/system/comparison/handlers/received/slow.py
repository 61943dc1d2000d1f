"""Answers after as many seconds as the request says."""

import time


def handle(data, context):
    if data is None:
        return None
    for row in data:
        time.sleep(row["body"]["seconds"])
    return ["slept"] * len(data)
